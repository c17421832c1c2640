// Package memory knows how much memory this process may use.
package memory

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Assumed is what Total returns where it cannot know, in bytes.
const Assumed = 2 << 30

// Total returns the bytes of memory that this process may use: the least of what the machine has and what its cgroup
// and those above it allow, of version 2 and 1. root is the file system of the machine.
func Total(root fs.FS) int64 {
	least := readMachine(root)
	for _, file := range listLimits(root) {
		if n, err := strconv.ParseInt(readText(root, file), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	return least
}

// readMachine returns the memory of the machine, or Assumed.
func readMachine(root fs.FS) int64 {
	for line := range strings.Lines(readText(root, "proc/meminfo")) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 53)
			if err == nil && kb > 0 {
				return kb << 10
			}
		}
	}
	return Assumed
}

// listLimits returns the files that may have a limit: of the process's cgroup and those above it. In a container the
// path of the cgroup is often not visible, and its files stand at the top.
func listLimits(root fs.FS) (files []string) {
	for line := range strings.Lines(readText(root, "proc/self/cgroup")) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		folder, name := "sys/fs/cgroup", "memory.max" // version 2 has one line, without controllers
		if controllers != "" {
			folder, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		if controllers != "" && !strings.Contains(","+controllers+",", ",memory,") {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			files = append(files, path.Join(folder, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}

// readText returns the text of a file, "" if it cannot be read.
func readText(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
