package main

import (
	"os"
	"strings"
)

// loadSettings puts the lines NAME=value of the file .env into the environment. What is set there already wins.
func loadSettings() error {
	text, err := os.ReadFile(".env")
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(name, "#") || os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, strings.Trim(value, `"'`)); err != nil {
			return err
		}
	}
	return nil
}

// setting returns a variable of the environment, or a standard value.
func setting(name, standard string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return standard
}
