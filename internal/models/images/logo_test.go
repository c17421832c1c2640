package images

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/png"
	"runtime"
	"strings"
	"testing"
)

// webpDot is a lossy WEBP of one pixel, whole.
func webpDot(t *testing.T) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// drawn makes a logo and reads it back.
func drawn(t *testing.T, file []byte) (image.Image, []byte) {
	t.Helper()
	b, err := DrawLogo(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if m.Bounds() != image.Rect(0, 0, 256, 256) {
		t.Errorf("it is %v large", m.Bounds())
	}
	return m, b
}

// alpha is how opaque a picture is at a point, of 255.
func alpha(m image.Image, x, y int) uint8 {
	return color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA).A
}

// Whatever comes, a PNG of 256 × 256 goes out, with the picture in its middle and
// nothing around it.
func TestLogo(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][]byte{
		"png":  pngOf(300, 300),
		"jpeg": jpegOf(20, 20),
		"gif":  gifOf(2048, 2048),
		"webp": webpDot(t),
	} {
		if m, _ := drawn(t, file); alpha(m, 128, 128) != 255 {
			t.Errorf("%s: its middle is empty", name)
		}
	}
	wide, _ := drawn(t, jpegOf(400, 100))
	for y, want := range map[int]uint8{0: 0, 95: 0, 96: 255, 159: 255, 160: 0, 255: 0} {
		if got := alpha(wide, 3, y); got != want {
			t.Errorf("a wide one: opacity %d in line %d, want %d", got, y, want)
		}
	}
	drawn(t, pngOf(2048, 1))
	drawn(t, pngOf(1, 2048))
}

// What a file carries besides its picture, such as where a photograph was taken or
// a second file behind it, is not in the logo.
func TestLogoKeepsOnlyThePicture(t *testing.T) {
	t.Parallel()
	const secret = "Exif\x00\x00 at 52.5N 13.4E <script>alert(1)</script>"
	exif := append([]byte{0xff, 0xd8, 0xff, 0xe1, 0, byte(len(secret) + 2)}, secret...)
	exif = append(exif, jpegOf(9, 9)[2:]...)
	text := pngOf(9, 9)
	text = append(text[:33:33],
		append(append([]byte{0, 0, 0, byte(len(secret))}, "tEXt"+secret+"\x00\x00\x00\x00"...), text[33:]...)...)
	for name, file := range map[string][]byte{
		"exif":         exif,
		"behind a PNG": append(pngOf(9, 9), secret...),
		"behind a GIF": append(gifOf(9, 9), secret...),
	} {
		_, b := drawn(t, file)
		if bytes.Contains(b, []byte("52.5N")) || bytes.Contains(b, []byte("script")) {
			t.Errorf("%s: the logo carries what the file did", name)
		}
	}
	if _, err := DrawLogo(text); !errors.Is(err, errLogoData) { // its checksum is wrong
		t.Errorf("a PNG with a broken chunk: %v", err)
	}
}

// What cannot be a logo is refused, whatever it calls itself, and before its pixels
// are unpacked.
func TestLogoRefuses(t *testing.T) { // alone, because it counts what is allocated
	small := webpExtended(16, 16)
	inner := webpLossless(16_384, 16_384)[12:]
	liar := append(small, inner...)
	binary.LittleEndian.PutUint32(liar[4:], uint32(len(liar)-8))
	passes := jpegOf(16, 16)
	passes = append(passes[:len(passes)-2:len(passes)-2],
		bytes.Repeat([]byte{0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0, 0}, 5000)...)
	for _, c := range []struct {
		name string
		file []byte
		want error
	}{
		{"nothing", nil, errLogoNone},
		{"one byte too many", padded(pngOf(3, 3), MaxLogoBytes+1), errLogoSize},
		{"SVG", []byte(`<?xml version="1.0"?><SVG xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`), errLogoSVG},
		{"HTML", []byte("<html><script>alert(1)</script>"), errLogoKind},
		{"PDF", []byte("%PDF-1.7 and so on"), errLogoKind},
		{"BMP", []byte("BM" + strings.Repeat("\x00", 60)), errLogoKind},
		{"a cut PNG", pngOf(64, 64)[:60], errLogoData},
		{"a cut JPEG", jpegOf(64, 64)[:300], errLogoData},
		{"a cut header", pngOf(64, 64)[:20], errLogoData},
		{"2,049 pixels", pngHeader(2049, 1), errLogoLarge},
		{"a huge PNG", padded(pngHeader(60_000, 3000), 1<<20), errLogoLarge},
		{"an impossible one", pngHeader(1<<31-1, 1<<31-1), errLogoData},
		{"a huge WEBP", webpLossless(16_384, 16_384), errLogoLarge},
		{"a WEBP that is larger inside", liar, errLogoData},
		{"a JPEG of passes", passes, errLogoScans},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := DrawLogo(c.file)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, c.want) || b != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
			t.Errorf("%s: %d bytes allocated", c.name, n)
		}
	}
}
