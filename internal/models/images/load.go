package images

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// maxRemote is the largest number of remote images in a request (contract §8).
const maxRemote = 20

// A rule has a provider's rules for images (provider notes A.2, B.4, C.6).
type rule struct {
	inline   bool  // remote images are sent as data: URLs
	gif      bool  // GIF is accepted
	maxBytes int64 // of all images; if inline, of their base64 and of the texts
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

func findRule(providerName string) rule {
	switch providerName {
	case "anthropic":
		return anthropic
	case "google":
		return google
	}
	return openAI
}

// A picture is an image of a request with its properties.
type picture struct {
	of     *conversation.Picture
	at     func() string // its path in the request; there may be thousands
	remote *url.URL      // nil = a data: URL
	img    *Image
	err    error
}

// Load checks the images of a request to a provider and writes their types and dimensions into its parts. If the
// provider does not fetch remote images, they become data: URLs; otherwise only their start is read. reserve is called
// by several goroutines with the number of bytes of images that have arrived, and refuses the request with its error;
// nil reserves nothing. An error is an *apierr.Error that names the image, or that of reserve or ctx.
func (f *Fetcher) Load(
	ctx context.Context, r *provider.Request, providerName string, reserve func(bytes int) error,
) error {
	list := listPictures(r)
	if len(list) == 0 {
		return nil
	}
	limits := findRule(providerName)
	remote := map[string][]*picture{}
	for _, p := range list {
		p.parse()
		if err := p.checkRule(limits, len(list)); err != nil {
			return err
		}
		if p.remote != nil {
			remote[p.of.URL] = append(remote[p.of.URL], p)
		}
	}
	if len(remote) > maxRemote {
		return apierr.InvalidRequest.Errorf("messages: at most %d remote images in a request", maxRemote)
	}
	total := limits.sumBytes(list)
	if limits.inline {
		total += sumTextBytes(r)
	}
	if total > limits.maxBytes {
		return limits.makeSizeError()
	}
	if err := f.fetchAll(ctx, remote, limits, total, reserve); err != nil {
		return err
	}
	for _, p := range list {
		if err := p.checkRule(limits, len(list)); err != nil {
			return err
		}
	}
	for _, p := range list { // all checks have passed: change the request
		p.of.MediaType, p.of.Width, p.of.Height = p.img.MediaType, p.img.Width, p.img.Height
		p.of.URL = cmp.Or(p.img.url, p.of.URL)
	}
	return nil
}

func listPictures(r *provider.Request) (list []*picture) {
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			if p := r.Turns[i].Blocks[j].Picture; p != nil {
				list = append(list, &picture{of: p, at: func() string {
					return conversation.Member(r.Turns, i, j) + ".image_url.url"
				}})
			}
		}
	}
	return list
}

// CountRemote returns how many images of a request are not in it.
func CountRemote(r *provider.Request) (n int) {
	for _, p := range listPictures(r) {
		if p.parse(); p.remote != nil {
			n++
		}
	}
	return n
}

// IsRemote reports whether an image is not in its URL.
func IsRemote(u string) bool { return len(u) < 5 || !strings.EqualFold(u[:5], "data:") }

// CheckURL checks the URL of an image without network access.
func CheckURL(raw string) error {
	p := picture{of: &conversation.Picture{URL: raw}}
	p.parse()
	return p.err
}

// parse parses the URL, and the image if it is a data: URL.
func (p *picture) parse() {
	if u := p.of.URL; !IsRemote(u) {
		p.img, p.err = ParseDataURL(u)
	} else {
		p.remote, p.err = parseURL(u)
	}
}

// checkRule checks the properties that are known so far against the provider's rule.
func (p *picture) checkRule(limits rule, images int) error {
	side := limits.side(images)
	switch {
	case p.err != nil:
		e := apierr.InvalidRequest.Errorf("%s: %v", p.at(), p.err)
		e.Cause = errors.Unwrap(p.err)
		return e
	case p.img == nil: // not fetched yet
		return nil
	case p.img.MediaType == "image/gif" && !limits.gif:
		return apierr.InvalidRequest.Errorf("%s: this model's provider takes no GIF; use PNG, JPEG or WEBP", p.at())
	case p.img.Width > side || p.img.Height > side:
		return apierr.InvalidRequest.Errorf(
			"%s: this model's provider takes at most %d pixels a side in a request with %d images; this one has %d x %d", p.at(), side, images, p.img.Width, p.img.Height)
	}
	return nil
}

// fetchAll fetches each URL one time. It stops when all images together are too large, so that a request needs no more
// memory than the provider accepts.
func (f *Fetcher) fetchAll(
	ctx context.Context, remote map[string][]*picture, limits rule, total int64, reserve func(int) error,
) error {
	if len(remote) == 0 {
		return nil
	}
	all, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var sum atomic.Int64
	sum.Store(total)
	var group errgroup.Group // without its context: the first error in order counts, not in time
	group.SetLimit(maxParallel)
	for _, same := range remote {
		group.Go(func() error {
			if err := f.fetchShared(all, same, limits, reserve); err != nil {
				cancel()
				return err
			}
			if sum.Add(limits.sumBytes(same)) > limits.maxBytes {
				cancel()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil { // there is no room for more bytes
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case sum.Load() > limits.maxBytes:
		return limits.makeSizeError()
	}
	return nil
}

// fetchShared fetches one URL for all pictures that have it. The error is that of reserve.
func (f *Fetcher) fetchShared(ctx context.Context, same []*picture, limits rule, reserve func(int) error) error {
	var img *Image
	var err error
	if limits.inline {
		img, err = f.Fetch(ctx, same[0].remote, reserve)
	} else {
		img, err = f.Probe(ctx, same[0].remote)
	}
	if refusal, ok := errors.AsType[*reserveError](err); ok {
		return refusal.cause
	}
	for _, p := range same {
		p.img, p.err = img, err
	}
	return nil
}

// sumBytes returns the bytes of these pictures for the provider's limit. Pictures that are not fetched yet count 0.
func (l rule) sumBytes(list []*picture) (n int64) {
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

func (l rule) makeSizeError() error {
	if l.inline {
		return apierr.InvalidRequest.Errorf(
			"messages: this model's provider takes at most %d MB in a request, images in base64 included; use fewer or smaller images", l.maxBytes/1_000_000)
	}
	return apierr.InvalidRequest.Errorf(
		"messages: this model's provider takes at most %d MB of images in a request; use fewer or smaller ones",
		l.maxBytes/1_000_000)
}

// sumTextBytes estimates the bytes of the texts in the body of a request.
func sumTextBytes(r *provider.Request) (n int64) {
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			b := &r.Turns[i].Blocks[j]
			n += int64(len(b.Text) + len(b.Arguments) + len(b.Extra))
			for k := range b.Blocks {
				n += int64(len(b.Blocks[k].Text))
			}
		}
	}
	for i := range r.Tools {
		n += int64(len(r.Tools[i].Description) + len(r.Tools[i].Parameters))
	}
	return n
}
