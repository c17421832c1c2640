package main

import (
	"bufio"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// A bom is a software bill of materials in the form of CycloneDX 1.6.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string     `json:"type"`
	Ref      string     `json:"bom-ref"`
	Name     string     `json:"name"`
	Version  string     `json:"version"`
	URL      string     `json:"purl"`
	Hashes   []hash     `json:"hashes,omitempty"`
	Licenses []license  `json:"licenses,omitempty"`
	Notes    []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License licenseID `json:"license"`
}

type licenseID struct {
	ID string `json:"id"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// writeModules writes the modules that are linked into a binary, as the binary itself lists them, to NAME.cdx.json.
func (r release) writeModules(binary, name string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	licenses, err := readLicenses("THIRD_PARTY_LICENSES")
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(newBOM(r.version, info, sha256.Sum256(content), licenses), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name+".cdx.json"), append(text, '\n'), 0o644)
}

// newBOM returns the bill of a binary with a digest. Its serial number follows from the digest, so that two builds of
// one binary have one bill.
func newBOM(v version, info *debug.BuildInfo, digest [sha256.Size]byte, licenses map[string][]string) bom {
	program := newComponent("application", info.Main.Path, v.name)
	program.Licenses = []license{{licenseID{"Apache-2.0"}}}
	program.Hashes = []hash{{"SHA-256", hex.EncodeToString(digest[:])}}
	for _, s := range info.Settings {
		program.Notes = append(program.Notes, property{"build:" + s.Key, s.Value})
	}
	standard := newComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))
	standard.Licenses = []license{{licenseID{"BSD-3-Clause"}}}
	b := bom{
		Format:       "CycloneDX",
		SpecVersion:  "1.6",
		SerialNumber: "urn:uuid:" + formatUUID(digest[:16]),
		Version:      1,
		Metadata:     bomMetadata{Timestamp: v.date.Format(time.RFC3339), Component: program},
		Components:   []component{standard},
		Dependencies: []dependency{{Ref: program.Ref, DependsOn: []string{standard.Ref}}},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := newComponent("library", m.Path, m.Version)
		for _, kind := range licenses[m.Path] {
			c.Licenses = append(c.Licenses, license{licenseID{kind}})
		}
		if m.Sum != "" {
			c.Notes = []property{{"go:sum", m.Sum}}
		}
		b.Components = append(b.Components, c)
		b.Dependencies[0].DependsOn = append(b.Dependencies[0].DependsOn, c.Ref)
	}
	return b
}

func newComponent(kind, path, version string) component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Ref: url, Name: path, Version: version, URL: url}
}

// formatUUID writes 16 bytes as a UUID of version 8 (RFC 9562): its bits are our own.
func formatUUID(b []byte) string {
	u := append([]byte(nil), b...)
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// licenseLine matches a module and its licences at the top of THIRD_PARTY_LICENSES.
var licenseLine = regexp.MustCompile(`^(\S+) +([A-Z][A-Za-z0-9.-]*(?:, [A-Z][A-Za-z0-9.-]*)*)$`)

// readLicenses returns the licences of each module, as THIRD_PARTY_LICENSES lists them.
func readLicenses(name string) (map[string][]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	licenses := map[string][]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "---") { // the texts follow
		if m := licenseLine.FindStringSubmatch(lines.Text()); m != nil {
			licenses[m[1]] = strings.Split(m[2], ", ")
		}
	}
	return licenses, lines.Err()
}
