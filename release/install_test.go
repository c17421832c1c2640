package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// maxImage is the most that a container image may have, in bytes, compressed as it is.
const maxImage = 25_000_000

// TestRelease builds a release for this machine from two clones, the second with an empty build cache, and compares
// each file. Then it takes the packages and the image as an operator does.
func TestRelease(t *testing.T) {
	testkit.Long(t, "builds a release twice, and installs it")
	first := buildRelease(t, nil)
	t.Run("reproducible", func(t *testing.T) {
		t.Parallel()
		second := buildRelease(t, []string{"GOCACHE=" + t.TempDir()})
		one, other := readText(t, filepath.Join(first, "checksums.txt")),
			readText(t, filepath.Join(second, "checksums.txt"))
		if one != other {
			t.Errorf("two builds differ:\n%s\n%s", one, other)
		}
		t.Logf("equal:\n%s", one)
	})
	t.Run("packages", func(t *testing.T) {
		t.Parallel()
		testPackages(t, findFile(t, first, "*.deb"), findFile(t, first, "*.rpm"))
	})
	t.Run("service", func(t *testing.T) {
		t.Parallel()
		testService(t, findFile(t, first, "*.deb"))
	})
	t.Run("image", func(t *testing.T) {
		t.Parallel()
		testImage(t, findFile(t, first, "*_image.tar"))
	})
}

// buildRelease clones the checkout, builds a release for this machine in the clone, and returns its folder.
func buildRelease(t *testing.T, environ []string) string {
	t.Helper()
	start := time.Now()
	clone := filepath.Join(t.TempDir(), "purser")
	environ = append(append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
		"GIT_CONFIG_VALUE_0=*"),
		environ...)
	command(t, "", environ, "git", "clone", "--quiet", "--no-hardlinks", "..", clone)
	command(t, clone, environ, "make", "release", "ARGS=--platforms linux/"+runtime.GOARCH)
	t.Logf("built in %s", time.Since(start).Round(time.Second))
	return filepath.Join(clone, "dist")
}

// command runs a command and returns its output.
func command(t *testing.T, folder string, environ []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = folder, environ, &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

// findFile returns the one file of a folder that matches a pattern.
func findFile(t *testing.T, folder, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q match %s: %v", names, pattern, err)
	}
	return names[0]
}

// testPackages checks that both packages have the same files, that systemd accepts the unit, and that it takes from
// the service what it does not need.
func testPackages(t *testing.T, deb, rpm string) {
	root := t.TempDir()
	command(t, "", nil, "dpkg-deb", "--extract", deb, root)
	var files []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	inRPM := strings.Fields(command(t, "", nil, "rpm", "--query", "--package", "--list", rpm))
	slices.Sort(files)
	slices.Sort(inRPM)
	if !slices.Equal(files, inRPM) {
		t.Errorf("the Debian package has\n%s\nand the RPM\n%s", strings.Join(files, "\n"), strings.Join(inRPM, "\n"))
	}
	scripts := command(t, "", nil, "rpm", "--query", "--package", "--scripts", rpm)
	for _, part := range []string{"postinstall", "preuninstall", "postuninstall", "systemd-sysusers purser.conf"} {
		if !strings.Contains(scripts, part) {
			t.Errorf("the RPM has no %s:\n%s", part, scripts)
		}
	}
	unit := filepath.Join(root, "usr/lib/systemd/system/purser.service")
	if said := command(t, "", nil, "systemd-analyze", "security", "--offline=true", "--threshold=20",
		unit); said != "" {
		lines := strings.Split(strings.TrimSpace(said), "\n")
		t.Log(lines[len(lines)-1])
	}
}

// awaitReady waits until a node answers that it is ready.
func awaitReady(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		resp, err := http.Get(address + "/readyz")
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("never ready: %v", err)
		}
	}
}

// testService boots systemd in a container that has this machine's files, and a copy of each that it changes. There it
// runs the commands of docs/operate/install.md up to a billed call, on SQLite and then on PostgreSQL, and it breaks,
// reloads and stops the service.
func testService(t *testing.T, deb string) {
	folder := t.TempDir()
	shared := filepath.Join(folder, "shared")
	root := filepath.Join(folder, "root")
	if err := errors.Join(os.Mkdir(shared, 0o755), os.Mkdir(root, 0o755)); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	commands := readCommands(t, "## A package")
	commands = strings.ReplaceAll(commands, "./purser_VERSION_amd64.deb", "/run/trial/purser.deb")
	for name, text := range map[string]string{
		"purser.deb":    string(content),
		"trial.service": serviceTrial,
		"trial.sh":      serviceHelpers + firstCall + commands + serviceChecks,
	} {
		if err := os.WriteFile(filepath.Join(shared, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "", nil, "mount", "--bind", "/", root)
	defer command(t, "", nil, "umount", root)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	unit := filepath.Join(shared, "trial.service")
	boot := exec.CommandContext(ctx, "systemd-nspawn", "--quiet", "--boot", "--directory="+root, "--volatile=overlay",
		"--register=no", "--keep-unit", "--machine=purser-trial", "--private-network", "--bind="+shared+":/run/trial",
		"--bind-ro="+unit+":/etc/systemd/system/trial.service", "systemd.unit=trial.service")
	console, err := boot.CombinedOutput()
	said, readErr := os.ReadFile(filepath.Join(shared, "log"))
	if err != nil || readErr != nil || !strings.HasSuffix(string(said), "\nall is well\n") {
		t.Fatalf("%v %v\n%s\n%s", err, readErr, said, console)
	}
	t.Logf("in %s", time.Since(start).Round(time.Second))
	for line := range strings.Lines(string(said)) {
		if strings.HasPrefix(line, "== ") { // a command, and when it had ended
			t.Log(strings.TrimSpace(line))
		}
	}
}

// firstCall is a function of a shell that makes the first billed call of a new service.
//
//go:embed first_call.sh
var firstCall string

// serviceTrial is the unit that runs the trial, and ends the container after it.
const serviceTrial = `[Unit]
DefaultDependencies=no
Requires=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /run/trial/trial.sh
StandardOutput=file:/run/trial/log
StandardError=inherit
ExecStopPost=/bin/systemctl exit
`

// serviceHelpers come before the commands: the editor's work, and how long each command takes.
const serviceHelpers = `set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
trap 'systemctl status purser --no-pager || true; journalctl --no-pager -u purser | tail -30 || true' ERR
sudo() { "$@"; echo "== $((SECONDS)) s: $*"; }
sudoedit() { echo 'base_url: http://127.0.0.1:8080' >>"$1"; }
`

// serviceChecks come after them.
const serviceChecks = `
echo; echo "== $SECONDS s: ready"
[ "$(stat -c '%U %a' /etc/purser/purser.yaml)" = "root 600" ]
[ "$(stat -c '%U %a' /var/lib/purser/purser.db)" = "purser 600" ]
pid=$(systemctl show purser --property=MainPID --value)
[ "$(stat -c %U /proc/$pid)" = purser ]
grep -q '^CapEff:[[:space:]]*0*$' /proc/$pid/status
grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/$pid/status
purser version
export PURSER_OPERATOR_TOKEN=$(sed -n "s/^operator_token: *//p" /etc/purser/purser.yaml | tr -d \"\')
first_call http://127.0.0.1:8080 purser operator
echo "== $SECONDS s: a billed call, on SQLite"
install -d -o postgres /run/trial-pg
cat >/run/trial-pg/start <<END
set -e
cd /run/trial-pg
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
\$bin/initdb -D data -U purser -A trust --no-sync >/dev/null
\$bin/pg_ctl -D data -w -l log -o '-c listen_addresses=127.0.0.1 -p 5499 -k /run/trial-pg' start
END
su postgres -s /bin/sh /run/trial-pg/start
sed -i 's#^database:.*#database: postgres://purser@127.0.0.1:5499/postgres?sslmode=disable#' /etc/purser/purser.yaml
sudo purser doctor --config /etc/purser/purser.yaml
sudo systemctl restart purser
curl --fail --silent --retry 20 --retry-all-errors --retry-delay 1 http://127.0.0.1:8080/readyz
first_call http://127.0.0.1:8080 purser operator
echo "== $SECONDS s: a billed call, on PostgreSQL"
pid=$(systemctl show purser --property=MainPID --value)
systemctl reload purser
kill -KILL $pid
sleep 1 # systemd has noticed
curl --fail --silent --retry 30 --retry-all-errors --retry-delay 1 http://127.0.0.1:8080/readyz
[ "$(systemctl show purser --property=NRestarts --value)" = 1 ]
systemctl stop purser
[ "$(systemctl show purser --property=Result --value)" = success ]
echo 'envelope_key: wrong' >>/etc/purser/purser.yaml
systemctl start purser || true
sleep 5 # longer than RestartSec
[ "$(systemctl show purser --property=ExecMainStatus --value)" = 2 ]
systemctl is-failed purser
apt-get remove -y purser
[ -e /var/lib/purser/purser.db ] && [ -e /etc/purser/purser.yaml ] && ! [ -e /usr/bin/purser ]
echo "all is well"
`

// readCommands returns the first block of commands after a heading of docs/operate/install.md.
func readCommands(t *testing.T, heading string) string {
	t.Helper()
	_, section, _ := strings.Cut(readText(t, "../docs/operate/install.md"), "\n"+heading+"\n")
	_, block, found := strings.Cut(section, "\n```sh\n")
	commands, _, ended := strings.Cut(block, "\n```\n")
	if !found || !ended {
		t.Fatalf("install.md has no commands after %s", heading)
	}
	return commands
}

// testImage loads the image into an engine and runs a node in it on each database, as docs/operate/install.md says, up
// to a billed call.
func testImage(t *testing.T, image string) {
	info, err := os.Stat(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB", float64(info.Size())/1e6)
	if info.Size() > maxImage {
		t.Errorf("the image has %d bytes, more than %d", info.Size(), maxImage)
	}
	folder := t.TempDir()
	engine := func(args ...string) []string {
		return append([]string{"--root", filepath.Join(folder, "root"), "--runroot", filepath.Join(folder, "run"),
			"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--runtime", "runc"},
			args...)
	}
	t.Cleanup(func() { // its files belong to other users
		_ = exec.Command("podman", engine("rm", "--all", "--force", "--time", "0")...).Run()
		_ = exec.Command("podman", engine("system", "reset", "--force")...).Run()
	})
	start := time.Now()
	loaded := command(t, "", nil, "podman", engine("load", "--quiet", "--input", image)...)
	_, name, _ := strings.Cut(strings.TrimSpace(loaded), ": ")
	if !strings.HasPrefix(name, "localhost/purser:") {
		t.Errorf("the image has the name %q", name)
	}
	t.Logf("%s is loaded after %s", name, time.Since(start).Round(100*time.Millisecond))
	files := strings.TrimSpace(command(t, "", nil, "sh", "-c", "ulimit -Hn")) // this test may not raise its own limit
	run := append(engine("run"), "--rm", "--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges", "--ulimit", "nofile="+files+":"+files, "--ulimit", "nproc=1024:1024",
		"--stop-timeout", "330")
	database := dbtest.EmptyURL(t)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	socket := u.Query().Get("host")
	if err := os.Chmod(socket, 0o711); err != nil { // the image's user is another one
		t.Fatal(err)
	}
	for _, tt := range []struct{ volume, database string }{
		{"purser:/var/lib/purser", "sqlite:/var/lib/purser/purser.db"},
		{socket + ":" + socket, database},
	} {
		testNode(t, run, name, "--volume", tt.volume, "--env", "PURSER_DATABASE="+tt.database)
	}
}

// testNode runs an image as a node by an engine's command with further options, makes the node's first billed call, and
// stops it.
func testNode(t *testing.T, run []string, image string, options ...string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	token := rand.Text() + rand.Text()
	for _, variable := range []string{
		"PURSER_LISTEN=" + address,
		"PURSER_BASE_URL=http://" + address,
		"PURSER_ENVELOPE_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"PURSER_OPERATOR_TOKEN=" + token,
	} {
		options = append(options, "--env", variable)
	}
	node := exec.CommandContext(t.Context(), "podman", append(slices.Concat(run, options), image)...)
	var said bytes.Buffer
	node.Stdout, node.Stderr = &said, &said
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	awaitReady(t, "http://"+address)
	ready := time.Since(start)
	operator := slices.Concat([]string{"bash", "-c", "set -euo pipefail\n" + firstCall + `first_call "$@"`, "trial",
		"http://" + address, "podman"}, run, []string{"--env", "PURSER_OPERATOR_TOKEN", image, "operator"})
	charge := command(t, "", append(os.Environ(), "PURSER_OPERATOR_TOKEN="+token), operator[0], operator[1:]...)
	t.Logf("ready after %s, a billed call after %s: %s", ready.Round(100*time.Millisecond),
		time.Since(start).Round(100*time.Millisecond), strings.TrimSpace(charge))
	if err := node.Process.Signal(syscall.SIGTERM); err != nil { // podman passes it on
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the node ends with %v\n%s", err, said.String())
		}
	case <-time.After(time.Minute):
		t.Error("the node does not end")
	}
}
