package dev

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/purserhq/purser/internal/dev/sample"
)

// writeAppFile writes how commands act as the sample app, to app.json in the data folder (decision 080). Only its
// owner can read it.
func writeAppFile(folder string, d *sample.Data) error {
	text, err := json.MarshalIndent(map[string]string{
		"server":           d.BaseURL,
		"auth_url":         d.AuthURL,
		"app":              d.App.ID,
		"client_id":        d.App.ClientID,
		"client_secret":    d.App.ClientSecret,
		"public_client_id": d.PublicApp.ClientID,
	}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "app.json-*.new") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, "app.json"))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
