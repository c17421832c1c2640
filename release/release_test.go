package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var testVersion = version{name: "1.2.3+4.gabc", commit: "abc", date: time.Date(2026, 11, 23, 1, 2, 4, 0, time.UTC)}

func TestFormatVersion(t *testing.T) {
	t.Parallel()
	for described, want := range map[string]string{
		"v1.2.3-0-g0123456789ab":           "1.2.3",
		"v1.2.3-7-g0123456789ab":           "1.2.3+7.g0123456789ab",
		"v2.0.0-rc.1-0-g0123456789ab":      "2.0.0~rc.1",
		"v1.2.3-0-g0123456789ab.modified":  "1.2.3.modified",
		"0123456789ab":                     "0.0.0+0123456789ab",
		"0123456789ab.modified":            "0.0.0+0123456789ab.modified",
		"v2.0.0-rc.1-12-g0123456789ab":     "2.0.0~rc.1+12.g0123456789ab",
		"v10.20.30-1234-gabcdefabcdefabcd": "10.20.30+1234.gabcdefabcdefabcd",
	} {
		if got := formatVersion(described); got != want {
			t.Errorf("%s: %s, and not %s", described, got, want)
		}
	}
}

// TestArchives reads an archive of each form back: the program can be run, everything has the commit's date, and the
// order of the files does not matter.
func TestArchives(t *testing.T) {
	t.Parallel()
	files := []file{
		{name: "purser/purser", mode: 0o755, content: []byte("program")},
		{name: "purser/README.md", mode: 0o644, content: []byte("text")},
	}
	var packed, again, zipped bytes.Buffer
	if err := errors.Join(writeTarGz(&packed, testVersion.date, files),
		writeZip(&zipped, testVersion.date, files)); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	if err := writeTarGz(&again, testVersion.date, files); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed.Bytes(), again.Bytes()) {
		t.Error("another order of files makes another archive")
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	got := readTar(t, unpacked)
	if f := got["purser/purser"]; f.mode != 0o755 || string(f.content) != "program" {
		t.Errorf("purser/purser is %+v", f)
	}
	z, err := zip.NewReader(bytes.NewReader(zipped.Bytes()), int64(zipped.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		if !f.Modified.Equal(testVersion.date) || f.Name == "purser/purser" && f.Mode() != 0o755 {
			t.Errorf("%s has date %s and mode %s", f.Name, f.Modified, f.Mode())
		}
	}
}

// readTar returns the files of a tar by name. It checks their dates.
func readTar(t *testing.T, r io.Reader) map[string]file {
	t.Helper()
	files := map[string]file{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(testVersion.date) {
			t.Errorf("%s has date %s", h.Name, h.ModTime)
		}
		files[h.Name] = file{name: h.Name, mode: h.Mode, owner: h.Uid, content: content}
	}
}

// TestImage reads an image as a container engine does: from the index to the layer, with all digests.
func TestImage(t *testing.T) {
	t.Parallel()
	image, err := newImage(testVersion, "arm64", []file{
		{name: "usr/bin/purser", mode: 0o755, content: []byte("program")},
		{name: "var/lib/purser/", mode: 0o700, owner: imageUser},
	})
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	for _, f := range image {
		blobs[f.name] = f.content
	}
	read := func(d descriptor, value any) {
		t.Helper()
		content := blobs[blobPath(d)]
		if len(content) != d.Size || fmt.Sprintf("sha256:%x", sha256.Sum256(content)) != d.Digest {
			t.Fatalf("%+v does not match its blob of %d bytes", d, len(content))
		}
		if value == nil {
			return
		}
		if err := json.Unmarshal(content, value); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0], &manifest)
	if name := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != "purser:1.2.3-4.gabc" {
		t.Errorf("its name is %q", name)
	}
	var config struct {
		Architecture string
		Config       struct {
			User string
			Env  []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(manifest.Config, &config)
	if config.Architecture != "arm64" || config.Config.User != "65532:65532" ||
		slices.ContainsFunc(config.Config.Env, func(v string) bool { return strings.HasPrefix(v, "PURSER_") }) {
		t.Errorf("its configuration is %+v", config)
	}
	read(manifest.Layers[0], nil)
	unpacked, err := gzip.NewReader(bytes.NewReader(blobs[blobPath(manifest.Layers[0])]))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if id := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); id != config.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %s, and not %s", id, config.RootFS.DiffIDs[0])
	}
	files := readTar(t, bytes.NewReader(layer))
	for name, want := range map[string]file{
		"usr/":            {mode: 0o755},
		"usr/bin/":        {mode: 0o755},
		"usr/bin/purser":  {mode: 0o755},
		"var/lib/purser/": {mode: 0o700, owner: imageUser},
	} {
		if got, ok := files[name]; !ok || got.mode != want.mode || got.owner != want.owner {
			t.Errorf("%s is %+v (%t)", name, got, ok)
		}
	}
	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(blobs["manifest.json"], &docker); err != nil {
		t.Fatal(err)
	}
	if blobs[docker[0].Config] == nil || blobs[docker[0].Layers[0]] == nil ||
		docker[0].RepoTags[0] != "purser:1.2.3-4.gabc" {
		t.Errorf("manifest.json is %+v", docker)
	}
}

// TestImageFiles reads the certificates and the time zones of the image.
func TestImageFiles(t *testing.T) {
	t.Parallel()
	roots, err := encodeRoots()
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(roots, []byte("BEGIN CERTIFICATE")); n < 100 || !x509.NewCertPool().AppendCertsFromPEM(roots) {
		t.Errorf("there are %d certificates", n)
	}
	zones, err := readZones(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(zones, func(f file) bool { return f.name == "usr/share/zoneinfo/Europe/Berlin" })
	if i < 0 {
		t.Fatalf("Europe/Berlin is not among %d time zones", len(zones))
	}
	if _, err := time.LoadLocationFromTZData("Europe/Berlin", zones[i].content); err != nil {
		t.Error(err)
	}
}

// TestModules writes the bill of this test's own binary.
func TestModules(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	licenses, err := readLicenses("../THIRD_PARTY_LICENSES")
	if err != nil {
		t.Fatal(err)
	}
	if got := licenses["github.com/coder/websocket"]; !slices.Equal(got, []string{"ISC"}) || len(licenses) < 50 {
		t.Errorf("%d modules have licences; of websocket: %q", len(licenses), got)
	}
	b := newBOM(testVersion, info, sha256.Sum256(nil), licenses)
	if b.SerialNumber != "urn:uuid:e3b0c442-98fc-8c14-9afb-f4c8996fb924" {
		t.Errorf("its serial number is %s", b.SerialNumber)
	}
	urls := map[string]bool{}
	for _, c := range b.Components {
		urls[c.URL] = true
	}
	for _, m := range info.Deps {
		if url := newComponent("library", m.Path, m.Version).URL; !urls[url] {
			t.Errorf("%s is not in the bill", url)
		}
	}
	if c := b.Metadata.Component; c.URL != "pkg:golang/github.com/purserhq/purser@1.2.3%2B4.gabc" {
		t.Errorf("the program is %s", c.URL)
	}
}
