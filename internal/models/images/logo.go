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

// Bounds of an uploaded file, and the size of a logo.
const (
	MaxLogoBytes = 1 << 20
	maxLogoSide  = 2048
	maxScans     = 100 // of a JPEG: each costs a pass over the whole image and takes only a few bytes
	logoSide     = 256
)

// Errors of an uploaded logo.
var (
	errLogoNone  = errors.New("choose a file")
	errLogoSize  = errors.New("must be at most 1 MB")
	errLogoSVG   = errors.New("SVG isn’t supported, because an SVG file can contain scripts; export it as PNG")
	errLogoKind  = errors.New("must be a PNG, JPEG, WebP or GIF image")
	errLogoLarge = errors.New("must be at most 2,048 pixels wide and high")
	errLogoScans = errors.New("the JPEG has too many scans; save it as PNG")
	errLogoData  = errors.New("the image is damaged")
)

// DrawLogo draws an app's logo from an uploaded file: a new PNG of 256 × 256 pixels, so that only
// the visible content of the file is kept. It checks the dimensions before it decodes. Errors are for the uploader.
func DrawLogo(file []byte) ([]byte, error) {
	switch {
	case len(file) == 0:
		return nil, errLogoNone
	case len(file) > MaxLogoBytes:
		return nil, errLogoSize
	}
	found, err := inspectImage(bytes.NewReader(file))
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
	picture, err := decodeImage(found.MediaType, file)
	if err != nil || picture.Bounds().Empty() {
		return nil, errLogoData
	}
	var out bytes.Buffer
	if err := png.Encode(&out, drawFitted(picture)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decodeImage decodes an image. Of an animation it returns the first frame.
func decodeImage(mediaType string, file []byte) (image.Image, error) {
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

// drawFitted scales a picture to the size of a logo, keeps its shape and centers it.
func drawFitted(picture image.Image) image.Image {
	b := picture.Bounds()
	longest := max(b.Dx(), b.Dy())
	w, h := max(1, b.Dx()*logoSide/longest), max(1, b.Dy()*logoSide/longest)
	corner := image.Pt((logoSide-w)/2, (logoSide-h)/2)
	out := image.NewNRGBA(image.Rect(0, 0, logoSide, logoSide))
	draw.CatmullRom.Scale(out, image.Rectangle{Min: corner, Max: corner.Add(image.Pt(w, h))}, picture, b, draw.Src, nil)
	return out
}
