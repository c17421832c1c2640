package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// nfpm makes Debian and RPM packages from deploy/package/nfpm.yaml.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// packaged are the other files of a package, which nfpm.yaml names without their folders.
var packaged = append([]string{
	"deploy/package/nfpm.yaml", "deploy/package/postinstall.sh", "deploy/package/preremove.sh",
	"deploy/package/postremove.sh", "deploy/systemd/purser.service", "deploy/systemd/purser.sysusers",
}, documents...)

// writePackages makes a .deb and an .rpm of a binary. nfpm takes the date of a file from the file, so it gets copies
// that have the date of the commit.
func (r release) writePackages(ctx context.Context, binary, arch string) error {
	folder := filepath.Join(r.work, "package-"+arch)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for _, name := range append([]string{binary}, packaged...) {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		path := filepath.Join(folder, filepath.Base(name))
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(path, r.date, r.date); err != nil {
			return err
		}
	}
	proxy, err := moduleProxy(ctx)
	if err != nil {
		return err
	}
	for _, kind := range []string{"deb", "rpm"} {
		cmd := exec.CommandContext(ctx, "go", "run", nfpm, "package", "--packager", kind, "--target", r.out)
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder, os.Stderr, os.Stderr
		cmd.Env = append(os.Environ(), "GOPROXY="+proxy, "PURSER_VERSION="+r.name, "PURSER_ARCH="+arch,
			"SOURCE_DATE_EPOCH="+strconv.FormatInt(r.date.Unix(), 10))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("nfpm, for %s: %w", kind, err)
		}
	}
	return nil
}

// moduleProxy returns a GOPROXY that asks the module cache first, so that a second release needs no network.
func moduleProxy(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return "file://" + filepath.ToSlash(lines[0]) + "/cache/download," + lines[1], nil
}
