package images

import (
	"bytes"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/draw"
	"golang.org/x/image/webp"
)

// Bounds of what becomes a logo, and how large a logo is.
const (
	MaxLogoBytes = 1 << 20
	maxLogoSide  = 2048
	maxScans     = 100 // of a JPEG: each passes over the whole image, and a few bytes make one
	logoSide     = 256
)

// What may be wrong with a logo.
var (
	errLogoNone  = errors.New("choose a file")
	errLogoSize  = errors.New("must be at most 1 MB")
	errLogoSVG   = errors.New("SVG is not taken, because such a file can hold programs; export it as PNG")
	errLogoKind  = errors.New("must be a PNG, JPEG, WebP or GIF image")
	errLogoLarge = errors.New("must be at most 2,048 pixels wide and high")
	errLogoScans = errors.New("the JPEG is built up in too many passes; save it as PNG")
	errLogoData  = errors.New("the image is damaged and cannot be read to its end")
)

// Logo draws an app's logo from an uploaded file: a new PNG of 256 × 256 pixels, so that only the visible content of
// the file is kept. It checks the dimensions before it decodes. Errors are for the uploader.
func Logo(file []byte) ([]byte, error) {
	switch {
	case len(file) == 0:
		return nil, errLogoNone
	case len(file) > MaxLogoBytes:
		return nil, errLogoSize
	}
	found, err := inspect(bytes.NewReader(file))
	switch {
	case errors.Is(err, errKind) && bytes.Contains(bytes.ToLower(file[:min(len(file), 4096)]), []byte("<svg")):
		return nil, errLogoSVG
	case errors.Is(err, errKind):
		return nil, errLogoKind
	case errors.Is(err, errLarge):
		return nil, errLogoLarge
	case err != nil:
		return nil, errLogoData
	case found.Width > maxLogoSide || found.Height > maxLogoSide:
		return nil, errLogoLarge
	case found.MediaType == "image/jpeg" && bytes.Count(file, []byte{0xff, 0xda}) > maxScans:
		return nil, errLogoScans
	}
	picture, err := decode(found.MediaType, file)
	if err != nil || picture.Bounds().Empty() {
		return nil, errLogoData
	}
	var out bytes.Buffer
	if err := png.Encode(&out, fitted(picture)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decode reads the whole of an image; of one that moves, the first picture.
func decode(mediaType string, file []byte) (image.Image, error) {
	r := bytes.NewReader(file)
	switch mediaType {
	case "image/png":
		return png.Decode(r)
	case "image/jpeg":
		return jpeg.Decode(r)
	case "image/gif":
		return gif.Decode(r)
	}
	return webp.Decode(r)
}

// fitted draws a picture as large as it fits, in the middle of a logo.
func fitted(picture image.Image) image.Image {
	b := picture.Bounds()
	longest := max(b.Dx(), b.Dy())
	w, h := max(1, b.Dx()*logoSide/longest), max(1, b.Dy()*logoSide/longest)
	corner := image.Pt((logoSide-w)/2, (logoSide-h)/2)
	out := image.NewNRGBA(image.Rect(0, 0, logoSide, logoSide))
	draw.CatmullRom.Scale(out, image.Rectangle{Min: corner, Max: corner.Add(image.Pt(w, h))}, picture, b, draw.Src, nil)
	return out
}
