package images

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Small images of every kind, and headers that claim what they like.

func pngOf(w, h int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// pngHeader is a PNG that says it has this size, and then nothing.
func pngHeader(w, h uint32) []byte {
	chunk := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)...)
	chunk = append(chunk, 8, 0, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	return binary.BigEndian.AppendUint32(append(b, chunk...), crc32.ChecksumIEEE(chunk))
}

func jpegOf(w, h int) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewRGBA(image.Rect(0, 0, w, h)), nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// jpegBehind is a JPEG with so many bytes of metadata before its size.
func jpegBehind(segment int, n int, rest []byte) []byte {
	b := []byte("\xff\xd8")
	for range n {
		b = append(b, 0xff, 0xe1, byte((segment+2)>>8), byte(segment+2))
		b = append(b, make([]byte, segment)...)
	}
	return append(b, rest[2:]...)
}

func gifOf(w, h int) []byte {
	var b bytes.Buffer
	if err := gif.Encode(&b, image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White}),
		nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func riff(kind string, chunk ...byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(12+len(chunk)))
	b = append(append(b, "WEBP"...), kind...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(chunk))), chunk...)
}

func webpLossless(w, h uint32) []byte {
	bits := (w - 1) | (h-1)<<14
	return riff("VP8L", append([]byte{0x2f}, binary.LittleEndian.AppendUint32(nil, bits)...)...)
}

func webpLossy(w, h uint16) []byte {
	chunk := []byte{0x10, 0, 0, 0x9d, 0x01, 0x2a}
	return riff("VP8 ", binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(chunk, w), h)...)
}

func webpExtended(w, h uint32) []byte {
	return riff("VP8X", 0, 0, 0, 0, byte(w-1), byte((w-1)>>8), byte((w-1)>>16), byte(h-1), byte((h-1)>>8),
		byte((h-1)>>16))
}

func dataURL(declared string, b []byte) string {
	return "data:" + declared + ";base64," + base64.StdEncoding.EncodeToString(b)
}

// padded is an image with so many bytes in all.
func padded(b []byte, size int) []byte { return append(b, make([]byte, size-len(b))...) }

// largest is an image of 5 MB.
var largest = sync.OnceValue(func() []byte { return padded(pngOf(3, 5), MaxBytes) })

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		url  string
		want Image
	}{
		{"PNG", dataURL("image/png", pngOf(3, 5)), Image{MediaType: "image/png", Width: 3, Height: 5}},
		{"JPEG", dataURL("image/jpeg", jpegOf(300, 5)), Image{MediaType: "image/jpeg", Width: 300, Height: 5}},
		{"GIF", dataURL("image/gif", gifOf(7, 9)), Image{MediaType: "image/gif", Width: 7, Height: 9}},
		{"WEBP, lossless", dataURL("image/webp", webpLossless(16_384, 2)), Image{
			MediaType: "image/webp",
			Width:     16_384,
			Height:    2,
		}},
		{"WEBP, lossy", dataURL("image/webp", webpLossy(640, 480)), Image{
			MediaType: "image/webp",
			Width:     640,
			Height:    480,
		}},
		{"WEBP, extended", dataURL("image/webp", webpExtended(60_000, 3000)), Image{
			MediaType: "image/webp",
			Width:     60_000,
			Height:    3000,
		}},
		{"one pixel", dataURL("image/png", pngOf(1, 1)), Image{MediaType: "image/png", Width: 1, Height: 1}},
		{"PNG declared as JPEG", dataURL("image/jpeg", pngOf(3, 5)), Image{
			MediaType: "image/png",
			Width:     3,
			Height:    5,
		}},
		{"JPEG declared as SVG", dataURL("image/svg+xml", jpegOf(3, 5)), Image{
			MediaType: "image/jpeg",
			Width:     3,
			Height:    5,
		}},
		{"image/jpg, which is no type", dataURL("image/jpg", jpegOf(3, 5)), Image{
			MediaType: "image/jpeg",
			Width:     3,
			Height:    5,
		}},
		{"capitals", "DATA:Image/PNG;BASE64," + base64.StdEncoding.EncodeToString(pngOf(3, 5)), Image{
			MediaType: "image/png",
			Width:     3,
			Height:    5,
		}},
		{"JPEG with 3 MB of metadata before its size", dataURL("image/jpeg", jpegBehind(65_000, 48, jpegOf(3, 5))),
			Image{
				MediaType: "image/jpeg",
				Width:     3,
				Height:    5,
			}},
		{"5 MB", dataURL("image/png", largest()), Image{MediaType: "image/png", Width: 3, Height: 5}},
		{"longest sides", dataURL("image/png", pngHeader(65_535, 3000)), Image{
			MediaType: "image/png",
			Width:     65_535,
			Height:    3000,
		}},
		{"cut behind the header", dataURL("image/png", pngOf(3, 5)[:40]), Image{
			MediaType: "image/png",
			Width:     3,
			Height:    5,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseDataURL(test.url)
			if err != nil {
				t.Fatal(err)
			}
			if got.MediaType != test.want.MediaType || got.Width != test.want.Width || got.Height != test.want.Height {
				t.Errorf("%s of %d x %d", got.MediaType, got.Width, got.Height)
			}
			_, data, _ := strings.Cut(test.url, ",")
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil || got.Bytes != len(raw) || got.Data != data ||
				got.url != "data:"+got.MediaType+";base64,"+data {
				t.Errorf("%d bytes, want %d; URL %.40s…; %v", got.Bytes, len(raw), got.url, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	ok := base64.StdEncoding.EncodeToString(padded(pngOf(3, 5), 76)) // ends in ==
	tests := []struct {
		name string
		url  string
		want error
	}{
		{"no comma", "data:image/png;base64", errDeclared},
		{"no base64", "data:image/png," + ok, errDeclared},
		{"a charset", "data:image/png;charset=utf-8;base64," + ok, errDeclared},
		{"a charset behind base64", "data:image/png;base64;charset=utf-8," + ok, errDeclared},
		{"a space in the head", "data:image/png; base64," + ok, errDeclared},
		{"no type", "data:;base64," + ok, errDeclared},
		{"no subtype", "data:image/;base64," + ok, errDeclared},
		{"not an image type", "data:text/html;base64," + ok, errDeclared},
		{"a long head", "data:image/" + strings.Repeat("x", 100) + ";base64," + ok, errDeclared},
		{"nothing", "", errDeclared},
		{"not a data: URL", "https://example.com/a,b", errDeclared},
		{"no padding", "data:image/png;base64," + strings.TrimRight(ok, "="), errBase64},
		{"too much padding", "data:image/png;base64," + ok + "====", errBase64},
		{"padding only", "data:image/png;base64,====", errBase64},
		{"one letter", "data:image/png;base64,A===", errBase64},
		{"padding in the middle", "data:image/png;base64,iVBO=w0K" + ok, errBase64},
		{"the other alphabet", "data:image/png;base64," + ok[:len(ok)-4] + "-_==", errBase64},
		{"a line break", "data:image/png;base64," + ok[:8] + "\r\n\r\n" + ok[8:], errBase64},
		{"percent escapes", "data:image/png;base64," + ok[:8] + "%2B0" + ok[8:], errBase64},
		{"rubbish far behind the header", "data:image/png;base64," + ok[:len(ok)-4] + "A\x00A=", errBase64},
		{"no bytes", "data:image/png;base64,", errKind},
		{"HTML", dataURL("image/png", []byte("<!doctype html><title>hi</title>")), errKind},
		{"SVG", dataURL("image/svg+xml", []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)), errKind},
		{"PDF", dataURL("image/png", []byte("%PDF-1.7\n%\xe2\xe3")), errKind},
		{"BMP", dataURL("image/bmp", []byte("BM\x46\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00")), errKind},
		{"a sound in RIFF", dataURL("image/webp", []byte("RIFF\x24\x00\x00\x00WAVEfmt ")), errKind},
		{"a byte of a PNG", dataURL("image/png", pngOf(3, 5)[:1]), errKind},
		{"PNG cut in its header", dataURL("image/png", pngOf(3, 5)[:20]), errBroken},
		{"PNG with a false checksum", dataURL("image/png", append(pngOf(3, 5)[:29], 1, 2, 3, 4)), errBroken},
		{"JPEG cut before its size", dataURL("image/jpeg", jpegOf(3, 5)[:30]), errBroken},
		{"JPEG of nothing but metadata", dataURL("image/jpeg", jpegBehind(65_000, 9, []byte("\xff\xd8"))), errBroken},
		{"GIF cut in its header", dataURL("image/gif", gifOf(3, 5)[:9]), errBroken},
		{"WEBP cut in its header", dataURL("image/webp", webpLossless(3, 5)[:18]), errBroken},
		{"GIF without width", dataURL("image/gif", []byte("GIF89a\x00\x00\x01\x00\x00\x00\x00;")), errBroken},
		{"PNG without height", dataURL("image/png", pngHeader(3, 0)), errBroken},
		{"PNG of 100,000 x 100,000", dataURL("image/png", pngHeader(100_000, 100_000)), errLarge},
		{"PNG of 65,535 x 65,535", dataURL("image/png", pngHeader(65_535, 65_535)), errLarge},
		{"PNG of 65,536 x 1", dataURL("image/png", pngHeader(65_536, 1)), errLarge},
		{"PNG of 2³¹-1 x 1", dataURL("image/png", pngHeader(1<<31-1, 1)), errLarge},
		{"WEBP of 16,384 x 16,384", dataURL("image/webp", webpLossless(16_384, 16_384)), errLarge},
		{"5 MB and one byte", dataURL("image/png", padded(pngOf(3, 5), MaxBytes+1)), errSize},
		{"20 MB", "data:image/png;base64," + strings.Repeat("A", 4*MaxBytes), errSize},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if img, err := ParseDataURL(test.url); !errors.Is(err, test.want) {
				t.Errorf("%v and error %v, want %v", img, err, test.want)
			}
		})
	}
}

// A PNG of few bytes whose pixels would fill 40 GB costs no more than another.
func TestParseDecodesNothing(t *testing.T) {
	for _, url := range []string{dataURL("image/png", padded(pngHeader(60_000, 3000), MaxBytes)),
		dataURL("image/webp", padded(webpExtended(60_000, 3000), MaxBytes))} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := ParseDataURL(url); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%d bytes allocated to look at an image of 180 million pixels", n)
		}
	}
}

// FuzzInspect: whatever the bytes are, they are an image of a sane size or
// refused with a sentence; what the library can decode is never refused as
// something else, nor told another size.
func FuzzInspect(f *testing.F) {
	for _, b := range [][]byte{
		pngOf(3, 5), pngHeader(1<<31-1, 1<<31-1), jpegOf(3, 5), jpegBehind(100, 3, jpegOf(3, 5)), gifOf(3, 5),
		webpLossless(3, 5), webpLossy(3, 5), webpExtended(3, 5),
		[]byte("RIFF\x00\x00\x00\x00WEBP"), []byte("<html>"), {},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		img, err := inspectImage(bytes.NewReader(b))
		sane(t, img, err)
		if c, kind, decodes := image.DecodeConfig(bytes.NewReader(b)); decodes == nil && err == nil &&
			(img.MediaType != "image/"+kind || img.Width != c.Width || img.Height != c.Height) {
			t.Fatalf("%+v, the library says %s %+v", img, kind, c)
		}
		if again, err2 := ParseDataURL(dataURL("image/png", b)); (err == nil) != (err2 == nil) && len(b) <= MaxBytes {
			t.Fatalf("%+v, %v, but as a data: URL %+v, %v", img, err, again, err2)
		}
	})
}

// FuzzParse: what is accepted is what the library decodes, and the URL that goes
// on says the same.
func FuzzParse(f *testing.F) {
	for _, url := range []string{
		dataURL("image/png", pngOf(3, 5)), dataURL("image/jpeg", gifOf(3, 5)), "data:image/png;base64,AA=A",
		"data:image/png;charset=x;base64,AAAA", "data:,", "DATA:IMAGE/GIF;BASE64,R0lGODlh",
		"data:image/png;base64,\n\n\n\n",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		img, err := ParseDataURL(url)
		sane(t, img, err)
		if err != nil {
			return
		}
		raw, err := base64.StdEncoding.DecodeString(img.Data)
		if err != nil || len(raw) != img.Bytes || !strings.HasSuffix(url, ","+img.Data) {
			t.Fatalf("%+v of %d bytes: %v", img, len(raw), err)
		}
		again, err := ParseDataURL(img.url)
		if err != nil || *again != *img {
			t.Fatalf("%+v became %+v, %v", img, again, err)
		}
	})
}

func sane(t *testing.T, img *Image, err error) {
	t.Helper()
	switch {
	case (img == nil) == (err == nil):
		t.Fatalf("%+v and error %v", img, err)
	case err != nil:
		for _, known := range []error{errDeclared, errBase64, errSize, errKind, errBroken, errLarge} {
			if err == known {
				return
			}
		}
		t.Fatalf("an error of its own: %v", err)
	case img.Width < 1, img.Height < 1, img.Width > maxSide, img.Height > maxSide, img.Width*img.Height > maxPixels:
		t.Fatalf("%d x %d", img.Width, img.Height)
	}
}
