package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPythonSDK runs the unit tests of the SDK for Python, with the interpreter that has Debian's httpx.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	python := exec.CommandContext(soon(t), "/usr/bin/python3", "-B", "-W", "error", "-m", "unittest", "discover",
		"-s", "tests", "-t", ".")
	python.Dir = filepath.Join("..", "sdk", "python")
	if out, err := python.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
