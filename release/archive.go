package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// documents are in every archive, package and image.
var documents = []string{"README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "THIRD_PARTY_LICENSES"}

// A file is one file or folder of an archive.
type file struct {
	name    string // with slashes, without one at the start; a folder ends with one
	mode    int64
	owner   int // user and group
	content []byte
}

// readFiles returns files of the checkout as files of a folder.
func readFiles(folder string, names ...string) ([]file, error) {
	var files []file
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: path.Join(folder, filepath.Base(name)), mode: 0o644, content: content})
	}
	return files, nil
}

// writeArchive writes the binary and the documents: a .tar.gz, or for Windows a .zip.
func (r release) writeArchive(binary, name, system string) error {
	files, err := readFiles(name, documents...)
	if err != nil {
		return err
	}
	program, err := readFiles(name, binary)
	if err != nil {
		return err
	}
	program[0].mode = 0o755
	files = append(files, program...)
	var b bytes.Buffer
	if system == "windows" {
		name += ".zip"
		err = writeZip(&b, r.date, files)
	} else {
		name += ".tar.gz"
		err = writeTarGz(&b, r.date, files)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), b.Bytes(), 0o644)
}

// writeTarGz writes a compressed tar of files. All have one date, and nothing of the machine is in it.
func writeTarGz(w io.Writer, date time.Time, files []file) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, date, files); err != nil {
		return err
	}
	return z.Close()
}

// writeTar writes a tar of files, in the order of their names.
func writeTar(w io.Writer, date time.Time, files []file) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{
			Name:    f.name,
			Mode:    f.mode,
			Uid:     f.owner,
			Gid:     f.owner,
			Size:    int64(len(f.content)),
			ModTime: date,
			Format:  tar.FormatUSTAR,
		}
		h.Typeflag = tar.TypeReg
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}

// writeZip writes a zip of files, with one date.
func writeZip(w io.Writer, date time.Time, files []file) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(f.mode))
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return z.Close()
}
