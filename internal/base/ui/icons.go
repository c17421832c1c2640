package ui

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"strings"
	"unicode"
)

// icons is one drawing with all icons, which make icons builds from those of Lucide. Their licence is ISC.
//
//go:embed assets/icons.svg
var iconsSVG []byte

var iconSprite = newAsset("icons", ".svg", "image/svg+xml", of(iconsSVG))

// iconOf returns an icon by its name in Lucide. It says nothing to a screen reader: a text stands next to it.
func iconOf(name string) (template.HTML, error) {
	if !strings.Contains(string(iconsSVG), `<symbol id="`+name+`"`) {
		return "", fmt.Errorf("ui: no icon %q: add it to ICONS in the Makefile and run make icons", name)
	}
	return template.HTML(`<svg class="icon" aria-hidden="true" focusable="false"><use href="` +
		iconSprite.Path() + "#" + template.HTMLEscapeString(name) + `"/></svg>`), nil
}

// avatarColors is how many colors an avatar can have: the classes tone-0 to tone-7 of the style sheet.
const avatarColors = 8

// avatarOf draws the initials of a name or an e-mail address on a color that belongs to the id, or + for a name without
// letters. It says nothing to a screen reader.
func avatarOf(id, name string) template.HTML {
	name, _, _ = strings.Cut(name, "@")
	sum := fnv.New32a()
	sum.Write([]byte(id)) // never fails
	initials := ""
	for _, word := range strings.FieldsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		initials += string(unicode.ToUpper([]rune(word)[0]))
		if len([]rune(initials)) == 2 {
			break
		}
	}
	if initials == "" {
		initials = "+"
	}
	return template.HTML(fmt.Sprintf(`<svg class="avatar tone-%d" viewBox="0 0 32 32" aria-hidden="true" `+
		`focusable="false"><rect width="32" height="32" rx="8"/>`+
		`<text x="16" y="21" text-anchor="middle">%s</text></svg>`,
		sum.Sum32()%avatarColors, template.HTMLEscapeString(initials)))
}
