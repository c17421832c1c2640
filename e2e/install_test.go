package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// installs are the functions that install each folder's packages once.
var installs sync.Map

// installNode puts the packages of a folder's package-lock.json into its node_modules. It needs the network only when
// the lock file has changed since the last installation.
func installNode(t *testing.T, folder string) {
	t.Helper()
	install, _ := installs.LoadOrStore(folder, sync.OnceValue(func() error { return installPackages(folder) }))
	if err := install.(func() error)(); err != nil {
		t.Fatalf("npm ci in %s: %v", folder, err)
	}
}

// supportedNode returns Node.js of a version that all clients support: that of the machine is too old for some.
func supportedNode(t *testing.T) string {
	t.Helper()
	installNode(t, "runtimes/node")
	return absolute(t, "runtimes/node/node_modules/.bin/node")
}

func installPackages(folder string) error {
	args := []string{"ci"}
	lock, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if errors.Is(err, fs.ErrNotExist) { // what package.json pins has binaries for each platform, which npm ci wants all
		args = []string{"install", "--no-package-lock"}
		lock, err = os.ReadFile(filepath.Join(folder, "package.json"))
	}
	if err != nil {
		return err
	}
	stamp := filepath.Join(folder, "node_modules", ".installed.json") // the lock file that was installed
	if done, err := os.ReadFile(stamp); err == nil && bytes.Equal(done, lock) {
		return nil
	}
	npm := exec.Command("npm", append(args, "--no-audit", "--no-fund", "--loglevel=error")...)
	npm.Dir, npm.Stderr = folder, os.Stderr
	if err := npm.Run(); err != nil {
		return err
	}
	return os.WriteFile(stamp, lock, 0o600)
}
