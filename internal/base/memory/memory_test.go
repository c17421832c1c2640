package memory

import (
	"testing"
	"testing/fstest"
)

func TestTotal(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:       16308480 kB\nMemFree:  100 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no Linux": {nil, Assumed},
		"machine":  {map[string]string{"proc/meminfo": meminfo}, 16308480 << 10},
		"version 2, without a limit": {map[string]string{
			"proc/meminfo":             meminfo,
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "max\n",
		}, 16308480 << 10},
		"version 2, limited above": {map[string]string{
			"proc/meminfo":                               meminfo,
			"proc/self/cgroup":                           "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/memory.max":           "1000000000\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max": "max\n",
		}, 1_000_000_000},
		"version 1": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "500000000\n",
		}, 500_000_000},
		"version 1 in a container": {map[string]string{
			"proc/meminfo":     meminfo,
			"proc/self/cgroup": "4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "500000000\n",
		}, 500_000_000},
	} {
		root := fstest.MapFS{}
		for file, text := range test.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := Total(root); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
