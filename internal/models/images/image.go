package images

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"golang.org/x/image/webp"
)

// Bounds of one image (contract §8). No provider takes longer sides.
const (
	MaxBytes  = 5 << 20
	maxSide   = 65_535
	maxPixels = 200_000_000
)

// An Image has the properties of an image that can be read without decoding it.
type Image struct {
	MediaType     string // image/png, image/jpeg, image/gif or image/webp, by its bytes
	Width, Height int    // in pixels, at least 1
	Bytes         int    // its size; 0 = unknown, for a remote image that was only probed
	Data          string // its bytes in base64; "" if they were not read

	url string // data: URL of MediaType that ends with Data
}

// Errors of an image. Their texts follow the path of the image in the request.
var (
	errForm     = errors.New("must be a data: URL or a public http or https URL")
	errDeclared = errors.New(
		"a data: URL must start with data:image/png;base64, (or jpeg, gif, webp), with no other parameters")
	errBase64 = errors.New("is not valid base64; use the standard alphabet with padding, without line breaks")
	errSize   = errors.New("an image has at most 5 MB")
	errKind   = errors.New("is not a PNG, JPEG, GIF or WEBP image")
	errBroken = errors.New("is an image with a broken header")
	errLarge  = errors.New("an image has at most 65,535 pixels a side and 200 million in all")
)

// ParseDataURL parses a data: URL. It decodes only the start, up to the dimensions. The type of the bytes replaces the
// type that the URL declares.
func ParseDataURL(url string) (*Image, error) {
	data, err := cutPayload(url)
	if err != nil {
		return nil, err
	}
	if len(data) > base64.StdEncoding.EncodedLen(MaxBytes) { // before looking at each byte
		return nil, errSize
	}
	size, ok := decodedLen(data)
	switch {
	case !ok:
		return nil, errBase64
	case size > MaxBytes:
		return nil, errSize
	}
	img, err := inspectImage(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return nil, err
	}
	img.Bytes, img.Data, img.url = size, data, url
	if head := img.head(); !strings.HasPrefix(url, head) { // a false or unusual declaration
		img.url = head + data
	}
	return img, nil
}

// head returns the start of the image's data: URL, up to the base64.
func (i *Image) head() string { return "data:" + i.MediaType + ";base64," }

// cutPayload returns the base64 of a data: URL. The URL must have the one form that every provider accepts, in any
// case.
func cutPayload(url string) (string, error) {
	head, data, ok := strings.Cut(url, ",")
	if !ok || len(head) > 100 {
		return "", errDeclared
	}
	kind, encoding, ok := strings.Cut(strings.ToLower(head), ";")
	if subtype, isImage := strings.CutPrefix(kind, "data:image/"); !ok || encoding != "base64" || !isImage ||
		subtype == "" {
		return "", errDeclared
	}
	return data, nil
}

// base64Letters is the set of bytes that encode six bits in base64.
var base64Letters = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		set[c] = true
	}
	return set
}()

// decodedLen returns the decoded length of base64 text, and whether it is valid, without decoding it.
func decodedLen(data string) (int, bool) {
	if len(data)%4 != 0 {
		return 0, false
	}
	letters := strings.TrimSuffix(strings.TrimSuffix(data, "="), "=")
	for i := range len(letters) {
		if !base64Letters[letters[i]] {
			return 0, false
		}
	}
	return len(letters) * 3 / 4, true
}

// headBytes is the length of the start that identifies the type of an image.
const headBytes = 12

// inspectImage reads the type and dimensions from the start of an image.
func inspectImage(r io.Reader) (*Image, error) {
	var head [headBytes]byte
	n, err := io.ReadFull(r, head[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	mediaType, config := detectFormat(head[:n])
	if config == nil {
		return nil, errKind
	}
	rest := &errorRecorder{r: r}
	c, err := config(io.MultiReader(bytes.NewReader(head[:n]), rest))
	switch {
	case rest.err != nil: // reading failed; the image may be valid
		return nil, rest.err
	case err != nil, c.Width < 1, c.Height < 1:
		return nil, errBroken
	case c.Width > maxSide, c.Height > maxSide, c.Width > maxPixels/c.Height:
		return nil, errLarge
	}
	return &Image{MediaType: mediaType, Width: c.Width, Height: c.Height}, nil
}

// detectFormat returns the type of an image by its first bytes, and the function that reads its dimensions, or nil.
func detectFormat(head []byte) (string, func(io.Reader) (image.Config, error)) {
	s := string(head)
	switch {
	case strings.HasPrefix(s, "\x89PNG\r\n\x1a\n"):
		return "image/png", png.DecodeConfig
	case strings.HasPrefix(s, "\xff\xd8\xff"):
		return "image/jpeg", jpeg.DecodeConfig
	case strings.HasPrefix(s, "GIF87a"), strings.HasPrefix(s, "GIF89a"):
		return "image/gif", gif.DecodeConfig
	case strings.HasPrefix(s, "RIFF") && strings.HasSuffix(s, "WEBP") && len(s) == headBytes:
		return "image/webp", webp.DecodeConfig
	}
	return "", nil
}

// errorRecorder records the error of a reader, so that it can be told from a malformed image.
type errorRecorder struct {
	r   io.Reader
	err error
}

func (m *errorRecorder) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}
