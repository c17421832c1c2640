//go:build !linux

package db

import "os"

func flush(f *os.File) error { return f.Sync() }
