package exchange

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

// An Image is an image that was sent with its bytes.
type Image struct {
	Kind          string // by its bytes: image/png, image/jpeg, image/gif, image/webp or ""
	Width, Height int    // 0 when not known
}

// DecodeImage decodes base64 and looks at the bytes.
func DecodeImage(data string) (Image, error) {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return Image{}, err
	}
	p := Image{}
	switch kind := http.DetectContentType(b); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		p.Kind = kind
	}
	if c, _, err := image.DecodeConfig(bytes.NewReader(b)); err == nil {
		p.Width, p.Height = c.Width, c.Height
	}
	return p, nil
}

// ParseDataURL divides a data: URL in base64.
func ParseDataURL(url string) (kind, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	head, data, ok := strings.Cut(rest, ",")
	kind, isBase64 := strings.CutSuffix(head, ";base64")
	return kind, data, ok && isBase64
}

// Patches are the squares of a side that cover the picture, at most so many.
func (p Image) Patches(side, most int) int {
	if p.Width == 0 {
		return most / 4
	}
	return min(most, (p.Width+side-1)/side*((p.Height+side-1)/side))
}
