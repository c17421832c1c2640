// Release builds what a release publishes: archives for developers, Debian and RPM packages and container images for
// operators, the modules of each binary, and checksums. Two runs at one commit, with one version of Go, write the same
// bytes.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// allPlatforms are the platforms of a release.
const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "dist", "`folder` to write to; what is in it is deleted")
	platforms := flag.String("platforms", allPlatforms, "`list` of OS/ARCH, separated by commas")
	flag.Parse()
	if err := run(ctx, *out, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A release is one state of the checkout, which is the working directory.
type release struct {
	version
	out  string // absolute
	work string // for files on the way, deleted at the end
}

// run builds the platforms into a folder.
func run(ctx context.Context, out string, platforms []string) error {
	v, err := readVersion(ctx)
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "purser-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := release{version: v, out: out, work: work}
	for _, platform := range platforms {
		system, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is no platform such as linux/amd64", platform)
		}
		start := time.Now()
		if err := r.buildPlatform(ctx, system, arch); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", platform, time.Since(start).Round(time.Second))
	}
	return writeChecksums(os.Stdout, out)
}

// buildPlatform makes the archive of a platform, with everything that developers use. For Linux it also makes what
// operators install, whose binary has no test doubles.
func (r release) buildPlatform(ctx context.Context, system, arch string) error {
	binary, err := r.build(ctx, system, arch, "")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("purser_%s_%s_%s", r.name, system, arch)
	if err := r.writeModules(binary, name); err != nil {
		return err
	}
	if err := r.writeArchive(binary, name, system); err != nil {
		return err
	}
	if system != "linux" {
		return nil
	}
	if binary, err = r.build(ctx, system, arch, "serve"); err != nil {
		return err
	}
	if err := r.writeModules(binary, name+"_serve"); err != nil {
		return err
	}
	if err := r.writePackages(ctx, binary, arch); err != nil {
		return err
	}
	return r.writeImage(ctx, binary, name+"_image.tar", arch)
}

// build builds purser by make build, so that there is one list of flags. The profile speeds up servers; it doubles the
// time of a build, so the other systems, which developers use, do without.
func (r release) build(ctx context.Context, system, arch, tags string) (path string, err error) {
	path = filepath.Join(r.work, system+"-"+arch+tags, "purser")
	args := []string{"--no-print-directory", "build", "TAGS=" + tags}
	if system == "windows" {
		path += ".exe"
	}
	if system != "linux" {
		args = append(args, "PGO=off")
	}
	cmd := exec.CommandContext(ctx, "make", append(args, "OUT="+path)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	// What the machine sets must not change the binary.
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=",
		"GOEXPERIMENT=", "GOFIPS140=off")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("make build: %w", err)
	}
	return path, nil
}

// A version is what a checkout is a version of.
type version struct {
	name   string // such as 0.2.0, or 0.2.0+7.g1234567 seven commits later; as in the names of files
	commit string
	date   time.Time // of the commit; every file of the release has it
}

// readVersion asks git.
func readVersion(ctx context.Context) (version, error) {
	described, err := git(ctx, "describe", "--tags", "--match", "v*", "--always", "--long", "--abbrev=12",
		"--dirty=.modified")
	if err != nil {
		return version{}, err
	}
	shown, err := git(ctx, "show", "--no-patch", "--format=%H %cI", "HEAD")
	if err != nil {
		return version{}, err
	}
	commit, date, _ := strings.Cut(shown, " ")
	v := version{name: formatVersion(described), commit: commit}
	v.date, err = time.Parse(time.RFC3339, date)
	v.date = v.date.UTC()
	return v, err
}

// formatVersion returns the version of git describe --long. Its form is right for both kinds of packages: a + sorts
// after the tag, and a ~, for v1.0.0-rc.1, before it.
func formatVersion(described string) string {
	described, modified := strings.CutSuffix(described, ".modified")
	name := "0.0.0+" + described // there is no tag
	if parts := strings.Split(described, "-"); len(parts) >= 3 {
		tag, count, hash := strings.Join(parts[:len(parts)-2], "-"), parts[len(parts)-2], parts[len(parts)-1]
		name = strings.Replace(strings.TrimPrefix(tag, "v"), "-", "~", 1)
		if count != "0" {
			name += "+" + count + "." + hash
		}
	}
	if modified {
		name += ".modified"
	}
	return name
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// writeChecksums writes checksums.txt, in the form of sha256sum, and prints it.
func writeChecksums(shown io.Writer, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), e.Name()))
		fmt.Fprintf(shown, "%6.1f MB  %s\n", float64(len(content))/1e6, e.Name())
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(folder, "checksums.txt"), []byte(strings.Join(lines, "")), 0o644)
}
