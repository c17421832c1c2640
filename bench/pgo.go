package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// writeMergedProfile merges the profiles of the run's cells into the file for the
// compiler's option -pgo.
func (b *bench) writeMergedProfile(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(b.profiles, "*.pprof"))
	if err != nil {
		return err
	}
	merged, err := exec.CommandContext(ctx, "go",
		append([]string{"tool", "pprof", "-proto", "-output", filepath.Join(b.dir, "merged")},
			files...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go tool pprof: %w\n%s", err, merged)
	}
	profile, err := os.ReadFile(filepath.Join(b.dir, "merged"))
	if err != nil {
		return err
	}
	if profile, err = removeFolders(profile); err != nil {
		return err
	}
	return os.WriteFile(b.pgo, profile, 0o644)
}

var errProfile = errors.New("the profile is not in pprof's format")

// The tables of pprof's format: fields of the outermost message.
const (
	pprofStrings   = 6
	protobufBytes  = 2
	protobufVarint = 0
)

// removeFolders removes the folders of this machine from a profile. The compiler finds
// functions by their names and lines.
func removeFolders(profile []byte) ([]byte, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(profile))
	if err != nil {
		return nil, err
	}
	in, err := io.ReadAll(zipped)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	to := gzip.NewWriter(&out)
	for len(in) > 0 {
		tag, n := binary.Uvarint(in)
		value, m := binary.Uvarint(in[max(n, 0):])
		if n <= 0 || m <= 0 {
			return nil, errProfile
		}
		end := n + m
		if tag&7 == protobufBytes {
			end += int(value)
		} else if tag&7 != protobufVarint {
			return nil, errProfile
		}
		if end < n || end > len(in) {
			return nil, errProfile
		}
		field := in[:end]
		if text := string(in[n+m : end]); tag == pprofStrings<<3|protobufBytes && strings.HasPrefix(text, "/") {
			text = filepath.Base(text)
			field = append(binary.AppendUvarint(binary.AppendUvarint(nil, tag), uint64(len(text))), text...)
		}
		if _, err := to.Write(field); err != nil {
			return nil, err
		}
		in = in[end:]
	}
	err = to.Close()
	return out.Bytes(), err
}
