package commands

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/purserhq/purser/internal/config"
)

// newSettingFlags returns a pointer to the struct that kong reads flags into. It has a
// *string for each setting of config.Keys that is no secret.
func newSettingFlags() any {
	var fields []reflect.StructField
	for i, k := range config.Keys() {
		if k.Secret {
			continue
		}
		fields = append(fields, reflect.StructField{
			Name: fmt.Sprintf("Setting%d", i), // its index in config.Keys
			Type: reflect.TypeFor[*string](),
			Tag:  reflect.StructTag(fmt.Sprintf("name:%q help:%q placeholder:%q", k.Flag(), k.Help, "VALUE")),
		})
	}
	return reflect.New(reflect.StructOf(fields)).Interface()
}

// givenSettings returns the flags that were given, as key=value.
func givenSettings(flags any) (pairs []string) {
	v := reflect.ValueOf(flags).Elem()
	for i, k := range config.Keys() {
		if f := v.FieldByName(fmt.Sprintf("Setting%d", i)); f.IsValid() && !f.IsNil() {
			pairs = append(pairs, k.Name+"="+f.Elem().String())
		}
	}
	return pairs
}

// listSettings lists every setting with its variable, for the help.
func listSettings() string {
	var b strings.Builder
	for _, k := range config.Keys() {
		fmt.Fprintf(&b, "  %-30s %-38s %s\n", k.Name, k.Variable(), k.Help)
	}
	return b.String()
}

// readSettingsFile reads the file of --config; none is an empty one.
func readSettingsFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	return os.ReadFile(path)
}
