package images

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/provider"
)

// maxRemote is how many remote images a request may have (contract §8).
const maxRemote = 20

// A rule is what a provider makes of images (provider notes A.2, B.4, C.6).
type rule struct {
	inline   bool  // remote images are sent as data: URLs
	gif      bool  // takes GIF
	maxBytes int64 // of the images together: with inline in base64 and with the texts, else as they are
	side     func(images int) int
}

var (
	openAI    = rule{gif: true, maxBytes: 50_000_000, side: func(int) int { return maxSide }}
	google    = rule{inline: true, maxBytes: 20_000_000, side: func(int) int { return maxSide }}
	anthropic = rule{inline: true, gif: true, maxBytes: 32_000_000, side: func(images int) int {
		if images > 20 {
			return 2000
		}
		return 8000
	}}
)

func ruleOf(providerName string) rule {
	switch providerName {
	case "anthropic":
		return anthropic
	case "google":
		return google
	}
	return openAI
}

// A picture is an image of a request with what was found out about it.
type picture struct {
	part   *provider.Part
	at     string   // its place in the request
	remote *url.URL // nil = a data: URL
	img    *Image
	err    error
}

// Load checks the images of a request to a provider, and writes their types and
// dimensions into its parts. A remote image becomes a data: URL where the
// provider does not fetch for itself; elsewhere only its start is read. An error
// is an *apierr.Error that names the image, or that of ctx.
func (f *Fetcher) Load(ctx context.Context, r *provider.Request, providerName string) error {
	list := pictures(r)
	if len(list) == 0 {
		return nil
	}
	limits := ruleOf(providerName)
	remote := map[string][]*picture{}
	for _, p := range list {
		p.read()
		if err := p.check(limits, len(list)); err != nil {
			return err
		}
		if p.remote != nil {
			remote[p.part.ImageURL] = append(remote[p.part.ImageURL], p)
		}
	}
	if len(remote) > maxRemote {
		return apierr.InvalidRequest.Errorf("messages: at most %d remote images in a request", maxRemote)
	}
	total := limits.size(list)
	if limits.inline {
		total += textBytes(r)
	}
	if total > limits.maxBytes {
		return limits.tooMuch()
	}
	if err := f.fetchAll(ctx, remote, limits, total); err != nil {
		return err
	}
	for _, p := range list {
		if err := p.check(limits, len(list)); err != nil {
			return err
		}
	}
	for _, p := range list { // every image is right: the request changes
		p.part.MediaType, p.part.Width, p.part.Height = p.img.MediaType, p.img.Width, p.img.Height
		p.part.ImageURL = cmp.Or(p.img.url, p.part.ImageURL)
	}
	return nil
}

func pictures(r *provider.Request) (list []*picture) {
	for i := range r.Messages {
		for j := range r.Messages[i].Parts {
			if p := &r.Messages[i].Parts[j]; p.Type == "image_url" {
				list = append(list, &picture{part: p, at: fmt.Sprintf("messages[%d].content[%d].image_url.url", i, j)})
			}
		}
	}
	return list
}

// Check says whether a URL is one that Load can look at, as far as that needs no
// network.
func Check(raw string) error {
	p := picture{part: &provider.Part{ImageURL: raw}}
	p.read()
	return p.err
}

// read does what needs no network.
func (p *picture) read() {
	if u := p.part.ImageURL; len(u) >= 5 && strings.EqualFold(u[:5], "data:") {
		p.img, p.err = Parse(u)
	} else {
		p.remote, p.err = parseURL(u)
	}
}

// check holds what is known so far against the provider's rule.
func (p *picture) check(limits rule, images int) error {
	side := limits.side(images)
	switch {
	case p.err != nil:
		e := apierr.InvalidRequest.Errorf("%s: %v", p.at, p.err)
		e.Cause = errors.Unwrap(p.err)
		return e
	case p.img == nil: // not fetched yet
		return nil
	case p.img.MediaType == "image/gif" && !limits.gif:
		return apierr.InvalidRequest.Errorf("%s: this model's provider takes no GIF; use PNG, JPEG or WEBP", p.at)
	case p.img.Width > side || p.img.Height > side:
		return apierr.InvalidRequest.Errorf(
			"%s: this model's provider takes at most %d pixels a side in a request with %d images; this one has %d x %d", p.at, side, images, p.img.Width, p.img.Height)
	}
	return nil
}

// fetchAll fetches each URL once. It stops when the images are too much
// together, so that a request costs no more memory than the provider takes.
func (f *Fetcher) fetchAll(ctx context.Context, remote map[string][]*picture, limits rule, total int64) error {
	if len(remote) == 0 {
		return nil
	}
	all, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	var sum atomic.Int64
	sum.Store(total)
	var group errgroup.Group // without its context: the first error in order counts, not in time
	group.SetLimit(parallel)
	for _, same := range remote {
		group.Go(func() error {
			f.fetch(all, same, limits)
			if sum.Add(limits.size(same)) > limits.maxBytes {
				cancel()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case sum.Load() > limits.maxBytes:
		return limits.tooMuch()
	}
	return nil
}

// fetch fetches one URL for all the pictures that show it.
func (f *Fetcher) fetch(ctx context.Context, same []*picture, limits rule) {
	get := f.Probe
	if limits.inline {
		get = f.Fetch
	}
	img, err := get(ctx, same[0].remote)
	for _, p := range same {
		p.img, p.err = img, err
	}
}

// size is what these pictures count against the provider's limit, as far as
// they are known.
func (l rule) size(list []*picture) (n int64) {
	for _, p := range list {
		switch {
		case p.img == nil:
		case l.inline:
			n += int64(base64.StdEncoding.EncodedLen(p.img.Bytes))
		default:
			n += int64(p.img.Bytes)
		}
	}
	return n
}

func (l rule) tooMuch() error {
	if l.inline {
		return apierr.InvalidRequest.Errorf(
			"messages: this model's provider takes at most %d MB in a request, images in base64 included; use fewer or smaller images", l.maxBytes/1_000_000)
	}
	return apierr.InvalidRequest.Errorf(
		"messages: this model's provider takes at most %d MB of images in a request; use fewer or smaller ones",
		l.maxBytes/1_000_000)
}

// textBytes is what the texts of a request add to its body, nearly.
func textBytes(r *provider.Request) (n int64) {
	for i := range r.Messages {
		m := &r.Messages[i]
		n += int64(len(m.Text))
		for j := range m.Parts {
			n += int64(len(m.Parts[j].Text))
		}
		for j := range m.ToolCalls {
			n += int64(len(m.ToolCalls[j].Arguments) + len(m.ToolCalls[j].ExtraContent))
		}
	}
	for i := range r.Tools {
		n += int64(len(r.Tools[i].Description) + len(r.Tools[i].Parameters))
	}
	return n
}
