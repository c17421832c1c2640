package commands

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"
)

type initCmd struct {
	Dir  string `arg:"" optional:"" default:"." help:"Folder for purser.yaml (default: the working directory)."`
	Data string `placeholder:"DIR" help:"Folder of the database file (default: data, next to purser.yaml)."`
}

// Help is shown by purser init --help.
func (initCmd) Help() string {
	return "Writes a commented purser.yaml for purser serve, with a fresh envelope key and a fresh operator's token, " +
		"readable by you alone. It never overwrites a file. Then fill in what only you can know; purser doctor says " +
		"what is missing.\n\nExample:\n  purser init /etc/purser && purser doctor --config /etc/purser/purser.yaml"
}

// settingsTemplate is what purser init writes.
//
//go:embed purser.yaml.tmpl
var settingsTemplate string

// Run writes the file.
func (c *initCmd) Run(p *program) error {
	folder, err := filepath.Abs(c.Dir)
	if err != nil {
		return exitError{err, exitUsage}
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	path := filepath.Join(folder, "purser.yaml")
	data := filepath.Join(folder, "data")
	if c.Data != "" {
		if data, err = filepath.Abs(c.Data); err != nil {
			return exitError{err, exitUsage}
		}
	}
	text, err := renderSettings(data)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: is there already, and was not changed", path)
	} else if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a part of it would look whole
	}
	_, err = fmt.Fprintf(p.out,
		"Wrote %s with a fresh envelope key. Keep a copy of that key: what it seals is lost with "+
			"it.\n\nFill in base_url, and what else applies. Then:\n\n  purser doctor --config %s\n  purser serve --config %s\n",
		path, path, path)
	return err
}

// renderSettings makes the folder of the database file, and returns the text of a new purser.yaml.
func renderSettings(data string) ([]byte, error) {
	t, err := template.New("purser.yaml").Parse(settingsTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]string{
		"Database":      "sqlite:" + filepath.Join(data, "purser.db"),
		"EnvelopeKey":   newKey(),
		"OperatorToken": newKey(),
	})
	if err == nil {
		err = os.MkdirAll(data, 0o700)
	}
	return b.Bytes(), err
}

// newKey returns 32 random bytes in base64.
func newKey() string {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}
