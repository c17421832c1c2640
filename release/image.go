package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and group in the image. The number is what "nonroot" has in images of other makers.
const imageUser = 65532

// The media types of the OCI image specification.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// A descriptor points to a blob of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// writeImage writes a container image as one tar, in the layout of the OCI specification and with the manifest.json
// that docker load reads. It holds the binary, the certificates of public authorities, time zones, and nothing else.
func (r release) writeImage(ctx context.Context, binary, name, arch string) error {
	files, err := imageFiles(ctx, binary)
	if err != nil {
		return err
	}
	image, err := newImage(r.version, arch, files)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := writeTar(&b, r.date, image); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), b.Bytes(), 0o644)
}

// imageFiles returns the files of the image. Their sources are the checkout, a Go module and the Go installation, and
// not the machine.
func imageFiles(ctx context.Context, binary string) ([]file, error) {
	files, err := readFiles("usr/share/doc/purser", documents...)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	roots, err := encodeRoots()
	if err != nil {
		return nil, err
	}
	zones, err := readZones(ctx)
	if err != nil {
		return nil, err
	}
	files = append(files, zones...)
	user := fmt.Sprintf("purser:x:%d:%[1]d::/var/lib/purser:/sbin/nologin\n", imageUser)
	return append(files,
		file{name: "usr/bin/purser", mode: 0o755, content: program},
		file{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: roots},
		file{name: "etc/passwd", mode: 0o644, content: []byte(user)},
		file{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "purser:x:%d:\n", imageUser)},
		file{name: "var/lib/purser/", mode: 0o700, owner: imageUser},
		file{name: "tmp/", mode: 0o1777},
	), nil
}

// encodeRoots returns the certificate authorities of Mozilla's list in PEM. Those that are trusted only with a
// condition are left out: a file of certificates cannot express it.
func encodeRoots() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		c, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "# %s\n", c.Subject)
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// readZones returns the time zones that come with Go.
func readZones(ctx context.Context) ([]file, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(out)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var files []file
	for _, entry := range z.File {
		if strings.HasSuffix(entry.Name, "/") {
			continue
		}
		content, err := readEntry(entry)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: path.Join("usr/share/zoneinfo", entry.Name), mode: 0o644, content: content})
	}
	return files, nil
}

func readEntry(entry *zip.File) ([]byte, error) {
	f, err := entry.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// newImage returns the files of an image's tar: blobs, and what names them.
func newImage(v version, arch string, files []file) ([]file, error) {
	var plain, packed bytes.Buffer
	layer := withFolders(files)
	if err := writeTar(&plain, v.date, layer); err != nil {
		return nil, err
	}
	if err := writeTarGz(&packed, v.date, layer); err != nil {
		return nil, err
	}
	var blobs []file
	addBlob := func(mediaType string, content []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		blobs = append(blobs, file{name: "blobs/sha256/" + sum, mode: 0o644, content: content})
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
	}
	var failed error
	encode := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			failed = err
		}
		return text
	}
	data := addBlob(typeLayer, packed.Bytes())
	config := addBlob(typeConfig, encode(newImageConfig(v, arch, plain.Bytes())))
	manifest := addBlob(typeManifest, encode(map[string]any{
		"schemaVersion": 2,
		"mediaType":     typeManifest,
		"config":        config,
		"layers":        []descriptor{data},
	}))
	tag := strings.NewReplacer("+", "-", "~", "-").Replace(v.name)
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": "purser:" + tag}
	manifest.Platform = &platform{Architecture: arch, OS: "linux"}
	index := encode(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	docker := encode([]map[string]any{{
		"Config":   blobPath(config),
		"RepoTags": []string{"purser:" + tag},
		"Layers":   []string{blobPath(data)},
	}})
	return append(blobs,
		file{name: "blobs/", mode: 0o755},
		file{name: "blobs/sha256/", mode: 0o755},
		file{name: "index.json", mode: 0o644, content: index},
		file{name: "manifest.json", mode: 0o644, content: docker},
		file{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	), failed
}

func blobPath(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

// newImageConfig returns how the image is run. It sets no setting of Purser: one from the environment would win over
// the operator's file.
func newImageConfig(v version, arch string, layer []byte) map[string]any {
	created := v.date.Format(time.RFC3339)
	return map[string]any{
		"created":      created,
		"architecture": arch,
		"os":           "linux",
		"config": map[string]any{
			"User":         fmt.Sprintf("%d:%[1]d", imageUser),
			"Entrypoint":   []string{"/usr/bin/purser"},
			"Cmd":          []string{"serve"},
			"Env":          []string{"PATH=/usr/bin"},
			"WorkingDir":   "/var/lib/purser",
			"ExposedPorts": map[string]any{"8080/tcp": struct{}{}},
			"Volumes":      map[string]any{"/var/lib/purser": struct{}{}},
			"StopSignal":   "SIGTERM",
			"Labels": map[string]string{
				"org.opencontainers.image.title":    "Purser",
				"org.opencontainers.image.source":   "https://github.com/purserhq/purser",
				"org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.version":  v.name,
				"org.opencontainers.image.revision": v.commit,
			},
		},
		"rootfs": map[string]any{
			"type":     "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))},
		},
		"history": []map[string]string{{"created": created, "created_by": "make release"}},
	}
}

// withFolders adds the folders that files are in, but for those that are there.
func withFolders(files []file) []file {
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.name] = true
	}
	all := files[:len(files):len(files)]
	for _, f := range files {
		for folder := path.Dir(strings.TrimSuffix(f.name, "/")); folder != "."; folder = path.Dir(folder) {
			if !seen[folder+"/"] {
				seen[folder+"/"] = true
				all = append(all, file{name: folder + "/", mode: 0o755})
			}
		}
	}
	return all
}
