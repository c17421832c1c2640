package tokens

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// The numbers are those that providers publish or that were measured, and what
// their rules give at the edges.
func TestImageTokens(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		family string
		w, h   int
		detail string
		want   int64
	}{
		// Patches of 32 x 32, as the image is: measured 11,930 for 4000 x 2500 with the text.
		{"gpt-5.6", 1, 1, "", 2},
		{"gpt-5.6", 32, 32, "auto", 2},
		{"gpt-5.6", 33, 32, "", 3},
		{"gpt-5.6", 1024, 1024, "original", 1229},
		{"gpt-5.6", 4000, 2500, "", 11_850},
		{"gpt-5.6", 6400, 4800, "", 36_000},
		{"gpt-5.6", 20_000, 20_000, "", 36_000},
		{"gpt-6", 4000, 2500, "auto", 11_850},
		// high: into 2048 x 2048, and at most 2,500 patches.
		{"gpt-5.6", 1024, 1024, "high", 1229},
		{"gpt-5.6", 4000, 2500, "high", 3000}, // 2048 x 1280 is 2,560 patches
		{"gpt-5.6", 4000, 2400, "high", 2996}, // 2048 x 1229
		{"gpt-5.6", 8192, 64, "high", 77},     // 2048 x 16
		// low: into 512 x 512.
		{"gpt-5.6", 4000, 2500, "low", 192}, // 512 x 320
		{"gpt-5.6", 4000, 4000, "low", 308},
		{"gpt-6", 64, 64, "low", 5},
		// The small models: 1,536 patches, × 1.62.
		{"gpt-mini", 1024, 1024, "", 1659},
		{"gpt-mini", 1024, 1536, "high", 2489},
		{"gpt-mini", 4000, 2500, "original", 2489},
		{"gpt-mini", 4000, 4000, "low", 415},
		// Tiles of 512 x 512 after scaling to 768; OpenAI's own two examples: 4 and 6 tiles.
		{"gpt-4o-mini", 1024, 1024, "high", 2833 + 4*5667},
		{"gpt-4o-mini", 2048, 4096, "auto", 2833 + 6*5667},
		{"gpt-4o-mini", 4096, 8192, "low", 2833},
		{"gpt-4o-mini", 512, 512, "", 2833 + 5667},
		{"gpt-4o-mini", 513, 512, "", 2833 + 2*5667},
		{"gpt-4o-mini", 9000, 3000, "", 2833 + 8*5667}, // 2048 x 683
		{"gpt-4o-mini", 2048, 768, "", 48_169},
		// 28 x 28 after scaling down to 1,568 or 2,576.
		{"claude-4", 28, 28, "", 1},
		{"claude-4", 1000, 1000, "", 1296},
		{"claude-4", 1092, 1092, "low", 1521},
		{"claude-4", 8000, 8000, "", 1600},
		{"claude-4", 8000, 800, "", 336}, // 1568 x 157
		{"claude-5", 1000, 1000, "", 1296},
		{"claude-5", 1920, 1080, "", 2691},
		{"claude-5", 2576, 1449, "", 4784},
		{"claude-5", 8000, 8000, "", 4784},
		{"claude-5", 8000, 100, "", 184}, // 2576 x 33
		// One tile when small, else squares of two thirds of the shorter side, 256 to 768.
		{"gemini-2", 1, 1, "", 258},
		{"gemini-2", 384, 384, "", 258},
		{"gemini-2", 385, 384, "", 4 * 258}, // 256
		{"gemini-2", 1024, 1024, "", 4 * 258},
		{"gemini-2", 960, 540, "", 6 * 258}, // 360
		{"gemini-2", 3072, 3072, "", 16 * 258},
		{"gemini-2", 4000, 100, "", 16 * 258},
		{"gemini-3", 1, 1, "", 1120},
		{"gemini-3", 8000, 8000, "high", 1120},
	} {
		p := conversation.Picture{Detail: test.detail, Width: test.w, Height: test.h}
		if got := families[test.family].image.countTokens(&p); got != test.want {
			t.Errorf("%s, %d x %d %s: %d tokens, want %d", test.family, test.w, test.h, test.detail, got, test.want)
		}
	}
}

// An image of known size costs the request what its formula says, instead of the
// bound for any image.
func TestCountRequestKnowsSizes(t *testing.T) {
	t.Parallel()
	known := picture("")
	known.Blocks[1].Picture.Width, known.Blocks[1].Picture.Height = 1024, 1024
	r := provider.Request{Turns: []conversation.Turn{known, picture("")}}
	if got, want := CountRequest(&r, "gpt-5.6"), int64(2*(4+1)+3+1229+36_000); got != want {
		t.Errorf("%d tokens, want %d", got, want)
	}
}

// The rules once more, in floating point and step by step as they are published:
// the count is never below, never above the bound for an image of unknown size,
// and seldom far above.
func TestImageTokensAreNeverBelow(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	side := func() int { return int(math.Exp(r.Float64() * math.Log(8000))) }
	for name, published := range map[string]func(w, h float64, detail string) float64{
		"gpt-5.6": func(w, h float64, detail string) float64 {
			return 1.2 * map[string]func(w, h float64) float64{
				"low":  budget(512, 256),
				"high": budget(2048, 2500),
				"":     budget(65_535, 30_000),
			}[detail](w, h)
		},
		"gpt-mini": func(w, h float64, detail string) float64 {
			return 1.62 * map[string]func(w, h float64) float64{
				"low":  budget(512, 256),
				"high": budget(65_535, 1536),
				"":     budget(65_535, 1536),
			}[detail](w, h)
		},
		"gpt-4o-mini": tiles,
		"claude-4":    func(w, h float64, _ string) float64 { return claude(w, h, 1568, 1568) },
		"claude-5":    func(w, h float64, _ string) float64 { return claude(w, h, 2576, 4784) },
	} {
		rule := families[name].image
		var sum, real float64
		for range 30_000 {
			detail := []string{"", "low", "high"}[r.IntN(3)]
			p := conversation.Picture{Detail: detail, Width: side(), Height: side()}
			unknown := conversation.Picture{Detail: detail}
			got, want := rule.countTokens(&p), published(float64(p.Width), float64(p.Height), detail)
			sum, real = sum+float64(got), real+want
			if float64(got) < want-1e-6 || got > rule.countTokens(&unknown) {
				t.Fatalf("%s, %d x %d %s: %d tokens, published %.1f, bound %d", name, p.Width, p.Height, detail, got,
					want, rule.countTokens(&unknown))
			}
		}
		if sum > 1.06*real {
			t.Errorf("%s: on the average %.3f of the published count", name, sum/real)
		}
	}
}

// budget is OpenAI's rule for patches: into a square, then, above the budget, the
// scale at which whole patches fit.
func budget(side, most float64) func(w, h float64) float64 {
	return func(w, h float64) float64 {
		if scale := side / max(w, h); scale < 1 {
			w, h = w*scale, h*scale
		}
		if n := math.Ceil(w/32) * math.Ceil(h/32); n <= most {
			return n
		}
		scale := math.Sqrt(32 * 32 * most / (w * h))
		scale *= min(math.Floor(w*scale/32)/(w*scale/32), math.Floor(h*scale/32)/(h*scale/32))
		if scale == 0 { // thinner than a patch
			return most
		}
		return min(most, math.Ceil(w*scale/32-1e-9)*math.Ceil(h*scale/32-1e-9))
	}
}

func tiles(w, h float64, detail string) float64 {
	if detail == "low" {
		return 2833
	}
	if scale := 2048 / max(w, h); scale < 1 {
		w, h = w*scale, h*scale
	}
	if scale := 768 / min(w, h); scale < 1 {
		w, h = w*scale, h*scale
	}
	return 2833 + 5667*math.Ceil(w/512-1e-9)*math.Ceil(h/512-1e-9)
}

// claude scales down until neither the side nor the tokens are too many.
func claude(w, h, side, most float64) float64 {
	scale := min(1, side/max(w, h))
	for ; math.Ceil(w*scale/28-1e-9)*math.Ceil(h*scale/28-1e-9) > most; scale *= 0.999 {
	}
	return math.Ceil(w*scale/28-1e-9) * math.Ceil(h*scale/28-1e-9)
}

func TestCheckImages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		family string
		w, h   int
		detail string
		want   string
	}{
		{"gpt-5.6", 6400, 4800, "", ""},
		{"gpt-5.6", 6401, 4800, "",
			"messages[0].content[1].image_url: this model reads at most 30000 patches of 32 x 32 pixels, and an image of 6401 x 4800 has 30150; send a smaller one, or detail: high"},
		{"gpt-6", 6400, 4801, "original",
			"messages[0].content[1].image_url: this model reads at most 30000 patches of 32 x 32 pixels, and an image of 6400 x 4801 has 30200; send a smaller one, or detail: high"},
		{"gpt-6", 8000, 8000, "high", ""},
		{"gpt-6", 8000, 8000, "low", ""},
		{"gpt-6", 0, 0, "", ""},
		{"gpt-mini", 8000, 8000, "", ""},
		{"claude-5", 8000, 8000, "", ""},
		{"none", 8000, 8000, "", ""},
	} {
		m := picture(test.detail)
		m.Blocks[1].Picture.Width, m.Blocks[1].Picture.Height = test.w, test.h
		err := CheckImages(&provider.Request{Turns: []conversation.Turn{m}}, test.family)
		var e *apierr.Error
		switch {
		case test.want == "" && err != nil, test.want != "" && !errors.As(err, &e):
			t.Errorf("%s, %d x %d %s: error %v", test.family, test.w, test.h, test.detail, err)
		case e != nil && (e.Message != test.want || e.Code != apierr.InvalidRequest):
			t.Errorf("%s, %d x %d %s: %v, want %s", test.family, test.w, test.h, test.detail, err, test.want)
		}
	}
}
