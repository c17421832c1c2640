package tokens

import (
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// image has a family's rules for counting images (provider notes F.3). low, high and auto bound an image of unknown
// size by its detail; count is the formula for known sizes. If a provider does not document the exact scaled size, the
// formula returns an upper bound.
type image struct {
	low, high, auto int64
	count           func(w, h int64, detail string) int64
	maxPatches      int64 // the provider refuses larger images that it does not scale down; 0 = no limit
}

func (i image) countTokens(p *conversation.Picture) int64 {
	switch {
	case p.Width > 0 && p.Height > 0:
		return i.count(int64(p.Width), int64(p.Height), p.Detail)
	case p.Detail == "low":
		return i.low
	case p.Detail == "high":
		return i.high
	}
	return i.auto
}

// The families' rules for images.
var (
	tileImage    = image{low: 2833, high: 48169, auto: 48169, count: gpt4oMiniTokens}
	miniImage    = image{low: 415, high: 2489, auto: 2489, count: gptMiniTokens}
	gptImage     = image{low: 308, high: 3000, auto: 36000, count: gptTokens, maxPatches: 30_000}
	claude4Image = image{low: 1600, high: 1600, auto: 1600, count: claude4Tokens}
	claude5Image = image{low: 4784, high: 4784, auto: 4784, count: claude5Tokens}
	gemini2Image = image{low: 4128, high: 4128, auto: 4128, count: gemini2Tokens}
	gemini3Image = image{low: 1120, high: 1120, auto: 1120, count: gemini3Tokens}
)

// CheckImages returns an error for images that the models of a family refuse for their size. The error is an
// *apierr.Error that names the image.
func CheckImages(r *provider.Request, familyName string) error {
	most := families[familyName].image.maxPatches
	if most == 0 {
		return nil
	}
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			p := r.Turns[i].Blocks[j].Picture
			if p == nil || p.Detail == "low" || p.Detail == "high" { // scaled down first
				continue
			}
			if n := countSquares(int64(p.Width), int64(p.Height), 32); n > most {
				return apierr.InvalidRequest.Errorf(
					"%s.image_url: this model reads at most %d patches of 32 x 32 pixels, and an image of %d x %d has "+
						"%d; send a smaller one, or detail: high",
					conversation.Member(r.Turns, i, j), most, p.Width, p.Height, n)
			}
		}
	}
	return nil
}

// gptTokens is for GPT-5.6 and later: only low and high are scaled down.
func gptTokens(w, h int64, detail string) int64 {
	switch detail {
	case "low":
		return patchTokens(w, h, 512, 256, 120)
	case "high":
		return patchTokens(w, h, 2048, 2500, 120)
	}
	return patchTokens(w, h, 65_535, 30_000, 120)
}

// gptMiniTokens is for the smaller models before GPT-5.6.
func gptMiniTokens(w, h int64, detail string) int64 {
	if detail == "low" {
		return patchTokens(w, h, 512, 256, 162)
	}
	return patchTokens(w, h, 65_535, 1536, 162)
}

// patchTokens scales an image down into a square of the side and counts its patches of 32 x 32 pixels, at most budget.
// It returns the given percentage of them.
func patchTokens(w, h, side, budget, percent int64) int64 {
	w, h = fitSide(w, h, side)
	return divideUp(min(countSquares(w, h, 32), budget)*percent, 100)
}

// gpt4oMiniTokens counts tiles of 512 x 512 pixels, after the image is scaled down into a square of 2048 and its
// shorter side to 768.
func gpt4oMiniTokens(w, h int64, detail string) int64 {
	const base, perTile = 2833, 5667
	if detail == "low" {
		return base
	}
	fitW, fitH := fitSide(w, h, 2048)
	if min(fitW, fitH) > 768 { // scale from the original size: rounding two times could lose a tile
		fitW, fitH = divideUp(w*768, min(w, h)), divideUp(h*768, min(w, h))
	}
	return base + perTile*countSquares(fitW, fitH, 512)
}

// claude4Tokens is for Claude 4.6 and earlier, and Haiku 4.5.
func claude4Tokens(w, h int64, _ string) int64 {
	w, h = fitSide(w, h, 1568)
	return min(countSquares(w, h, 28), 1600)
}

// claude5Tokens is for Claude 4.7 and later.
func claude5Tokens(w, h int64, _ string) int64 {
	w, h = fitSide(w, h, 2576)
	return min(countSquares(w, h, 28), 4784)
}

// gemini2Tokens counts one tile for a small image, and square tiles for a larger one.
func gemini2Tokens(w, h int64, _ string) int64 {
	const perTile = 258
	if w <= 384 && h <= 384 {
		return perTile
	}
	crop := max(256, min(768, min(w, h)*2/3))
	return perTile * countSquares(w, h, crop)
}

// gemini3Tokens returns the largest count at the default resolution. The provider chooses the real one.
func gemini3Tokens(int64, int64, string) int64 { return 1120 }

// fitSide scales an image down, keeping its shape, until no side is longer than side.
func fitSide(w, h, side int64) (int64, int64) {
	long := max(w, h)
	if long <= side {
		return w, h
	}
	return divideUp(w*side, long), divideUp(h*side, long)
}

// countSquares returns how many squares of the side cover an image.
func countSquares(w, h, side int64) int64 { return divideUp(w, side) * divideUp(h, side) }

func divideUp(n, by int64) int64 { return (n + by - 1) / by }
