package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
)

// The profile that is committed says nothing of the machine that it was made on, and
// is still one.
func TestProfileIsFromNowhere(t *testing.T) {
	t.Parallel()
	var made bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&made, 0); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(unzip(t, made.Bytes()), folder+"/pgo_test.go") {
		t.Fatal("no folder is in it to be taken out: was this built with -trimpath?")
	}
	profile, err := removeFolders(made.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if text := unzip(t, profile); strings.Contains(text, folder) || !strings.Contains(text, "pgo_test.go") {
		t.Error("a folder is left in it, or the name of the file is not")
	}
	file := filepath.Join(t.TempDir(), "pprof")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "TestProfileIsFromNowhere") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, bad := range [][]byte{nil, []byte("x"), made.Bytes()[:20]} {
		if _, err := removeFolders(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func unzip(t *testing.T, profile []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(profile))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
