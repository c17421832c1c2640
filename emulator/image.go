package emulator

import (
	"bytes"
	"encoding/base64"
	"image"
	_ "image/gif"  // for sizes
	_ "image/jpeg" // for sizes
	_ "image/png"  // for sizes
	"net/http"
	"strings"
)

// A picture is an image that was sent with its bytes.
type picture struct {
	kind          string // by its bytes: image/png, image/jpeg, image/gif, image/webp or ""
	width, height int    // 0 when not known
}

// look decodes base64 and looks at the bytes.
func look(data string) (picture, error) {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return picture{}, err
	}
	p := picture{}
	switch kind := http.DetectContentType(b); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		p.kind = kind
	}
	if c, _, err := image.DecodeConfig(bytes.NewReader(b)); err == nil {
		p.width, p.height = c.Width, c.Height
	}
	return p, nil
}

// dataURL divides a data: URL in base64.
func dataURL(url string) (kind, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	head, data, ok := strings.Cut(rest, ",")
	kind, isBase64 := strings.CutSuffix(head, ";base64")
	return kind, data, ok && isBase64
}

// patches are the squares of a side that cover the picture, at most so many.
func (p picture) patches(side, most int) int {
	if p.width == 0 {
		return most / 4
	}
	return min(most, (p.width+side-1)/side*((p.height+side-1)/side))
}
