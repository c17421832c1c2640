package history

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/people/accounts"
)

// An app is one of the developer's, with what its calls ask for.
type app struct {
	apps.App
	secret string
	calls  []call
}

// A call is one kind of inference request.
type call struct {
	model, feature, text string
	words                int // of the answer
	maxTokens            int
}

// A newApp is what an app is made from.
type newApp struct {
	name     string
	margin   money.PPM
	models   []string
	features []map[string]any
	logo     logo
	calls    []call
}

// appList are the apps. The first one goes live.
var appList = []newApp{
	{
		name:   "Inkwell",
		margin: money.One / 5,
		models: []string{"gpt-6.2-astra", "claude-opus-5-5", "gemini-4-argon", "gpt-6-luna"},
		features: []map[string]any{
			{
				"slug":                 "draft",
				"display_name":         "Drafts",
				"description":          "Writes a first draft from your notes.",
				"max_cost_per_call_mc": 50 * money.Cent,
			},
			{
				"slug":            "rewrite",
				"display_name":    "Rewrites",
				"description":     "Rewrites a passage in the tone that you choose.",
				"dev_margin_rate": 0.3,
			},
			{"slug": "titles", "display_name": "Titles", "description": "Suggests titles for a text."},
		},
		logo: logo{back: opaque(0x1f, 0x3a, 0x5f), front: opaque(0xf4, 0xe9, 0xcd), draw: drop},
		calls: []call{
			{
				model:   "gpt-6.2-astra",
				feature: "draft",
				text:    "Write a first draft about the harbour at dawn.",
				words:   900,
			},
			{
				model:   "claude-opus-5-5",
				feature: "rewrite",
				text:    "Rewrite this paragraph so that it is calm.",
				words:   700,
			},
			{
				model:   "gemini-4-argon",
				feature: "draft",
				text:    "Write an outline of a story in five parts.",
				words:   500,
			},
			{
				model:   "gpt-6-luna",
				feature: "titles",
				text:    "Suggest ten titles for this story.",
				words:   60,
			},
		},
	},
	{
		name:   "Study cards",
		margin: money.One * 35 / 100,
		models: []string{"gpt-6.1-sol", "claude-haiku-5-5", "gemini-3.8-flash"},
		features: []map[string]any{
			{"slug": "explain", "display_name": "Explanations", "description": "Explains a card in other words."},
			{
				"slug":         "quiz",
				"display_name": "Quizzes",
				"description":  "Makes a quiz from the cards that you found difficult.",
				"rate_limit":   3,
			},
		},
		logo: logo{back: opaque(0x6b, 0x2d, 0x5c), front: opaque(0xff, 0xd1, 0x66), draw: cards},
		calls: []call{
			{
				model:   "gpt-6.1-sol",
				feature: "explain",
				text:    "Explain how tides work, in other words.",
				words:   400,
			},
			{
				model:   "gemini-3.8-flash",
				feature: "quiz",
				text:    "Make a quiz of six questions from these cards.",
				words:   350,
			},
			{
				model:   "claude-haiku-5-5",
				feature: "explain",
				text:    "Explain why leaves turn red.",
				words:   250,
			},
		},
	},
	{
		name:   "Trip planner",
		margin: money.One / 10,
		models: []string{"gpt-5.4", "gemini-4-argon", "claude-sonnet-5-5", "gpt-realtime-2.1-mini"},
		features: []map[string]any{
			{"slug": "plan", "display_name": "Plans", "description": "Plans your days from what you like to do."},
			{"slug": "guide", "display_name": "Spoken guide", "description": "Talks with you while you walk."},
		},
		logo: logo{back: opaque(0x0f, 0x6e, 0x5b), front: opaque(0xff, 0xff, 0xff), draw: hills},
		calls: []call{
			{
				model:   "gpt-5.4",
				feature: "plan",
				text:    "Plan three days by the sea with two rainy afternoons.",
				words:   600,
			},
			{
				model:   "claude-sonnet-5-5",
				feature: "plan",
				text:    "Plan a walk of four hours with a long lunch.",
				words:   450,
			},
			{
				model:   "gemini-4-argon",
				feature: "plan",
				text:    "Which of these towns is best in October?",
				words:   300,
			},
		},
	},
}

// makeApps makes the apps with their features and logos, and takes the first one live.
func (m *Maker) makeApps(ctx context.Context) error {
	s := m.Server
	for i, n := range appList {
		m.wait(time.Hour)
		a := &app{calls: n.calls}
		err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			developerID, err := accounts.IDByEmail(ctx, tx, m.data.Developer.Email)
			if err != nil {
				return err
			}
			a.App, a.secret, err = s.Apps.Create(ctx, tx, apps.New{
				OwnerID:       developerID,
				Name:          n.name,
				RedirectURIs:  []string{"https://app.example.com/callback"},
				AllowedModels: n.models,
				Tier:          apps.Sandbox,
				ProviderMode:  apps.Mock,
				DevMargin:     n.margin,
			})
			return err
		})
		if err != nil {
			return err
		}
		picture, err := n.logo.encode()
		if err != nil {
			return err
		}
		if err := s.Apps.SetLogo(ctx, a.ID, picture); err != nil {
			return err
		}
		for _, f := range n.features {
			if err := m.call(ctx, "POST", "/v1/apps/"+a.ID+"/features", f, a.sign, nil); err != nil {
				return err
			}
		}
		if i == 0 {
			if err := m.goLive(ctx, a); err != nil {
				return err
			}
		}
		m.apps = append(m.apps, a)
	}
	return nil
}

// goLive takes an app live: its developer requests it, and the operator approves.
func (m *Maker) goLive(ctx context.Context, a *app) error {
	var request struct {
		ID string `json:"id"`
	}
	if err := m.call(ctx, "POST", "/v1/apps/"+a.ID+"/go-live", nil, a.sign, &request); err != nil {
		return err
	}
	m.wait(3 * time.Hour)
	err := m.call(ctx, "POST", "/v1/operator/go-live/"+request.ID+"/approve", nil, m.asOperator, nil)
	if err == nil {
		a.App, err = m.Server.Apps.Get(ctx, a.ID)
	}
	return err
}

// A logo is drawn in two colors.
type logo struct {
	back, front color.RGBA
	draw        func(x, y int) bool // reports whether a point is of the front, from -100 to 99
}

func opaque(r, g, b uint8) color.RGBA { return color.RGBA{R: r, G: g, B: b, A: 0xff} }

// encode returns the logo as a PNG file.
func (l logo) encode() ([]byte, error) {
	const half = 100
	picture := image.NewPaletted(image.Rect(0, 0, 2*half, 2*half), color.Palette{l.back, l.front})
	for y := range 2 * half {
		for x := range 2 * half {
			if l.draw(x-half, y-half) {
				picture.SetColorIndex(x, y, 1)
			}
		}
	}
	var out bytes.Buffer
	err := png.Encode(&out, picture)
	return out.Bytes(), err
}

// drop is a drop of ink.
func drop(x, y int) bool {
	if y < 10 {
		return y > -60 && 2*max(x, -x) < (y+60)*60/70
	}
	return x*x+(y-20)*(y-20) < 40*40
}

// cards are two cards, one behind the other.
func cards(x, y int) bool {
	inFront := x > -50 && x < 25 && y > -25 && y < 60
	behind := x > -20 && x < 55 && y > -55 && y < 30
	gap := x > -57 && x < 32 && y > -32 && y < 67
	return inFront || behind && !gap
}

// hills are two hills and a sun.
func hills(x, y int) bool {
	sun := (x-35)*(x-35)+(y+35)*(y+35) < 18*18
	left, right := max(x+20, -x-20), max(x-30, 30-x)
	return sun || y < 50 && (y > left-30 || y > right)
}
