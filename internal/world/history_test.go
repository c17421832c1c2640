package world

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// A world is a box with everybody in it.
type world struct {
	*Box
	money  *bank.Player
	api    *api
	reader *reader
	cast   *cast

	asker *asker
	hooks *subscriber

	begun   map[string]int // goroutines at the begin, by what has begun them
	failing int            // of the next step, such a statement fails; 0 = none
	leaving *leaving       // in the next step; nil = nobody
}

// A kind is a kind of step of this package; all others are those of package bank.
type kind struct {
	name   string
	weight int // of 100 steps
	play   func(*world, bank.Step) error
}

// faultStep lets a statement of the next step fail.
const faultStep = "statement-fails"

var kinds = []kind{
	{"read", 18, func(w *world, s bank.Step) error { return w.reader.reads(s) }},
	{"request", 10, func(w *world, s bank.Step) error { return w.api.requests(s) }},
	{"connect", 4, func(w *world, s bank.Step) error { return w.api.connect(s) }},
	{"scenario", 7, func(w *world, s bank.Step) error { return w.cast.step(s) }},
	{"renew", 2, (*world).renew},
	{"stranger", 2, (*world).steal},
	{"forgets", 1, (*world).forgets},
	{"approves", 2, (*world).approves},
	{"vanish", 1, func(w *world, s bank.Step) error { return w.money.Vanish(s) }},
	{"restart", 2, (*world).restart},
	{"ask", 5, func(w *world, s bank.Step) error { return w.asker.ask(s) }},
	{"hooks", 4, func(w *world, s bank.Step) error { return w.hooks.acts(s) }},
	{"clock-steps", 1, (*world).stepClock},
	{faultStep, 4, func(w *world, s bank.Step) error { w.failing = 1 + s.B%40; return nil }},
	{leaveStep, 2, (*world).leaves},
	{string(kill), 1, arms(kill, 200)},
	{string(hangs), 1, arms(hangs, 10)},
	{string(diskFull), 1, arms(diskFull, 4)},
}

// arming are the steps that let something happen in the next one.
var arming = []string{faultStep, leaveStep, string(kill), string(hangs), string(diskFull)}

// enter opens a world in a box.
func enter(b *Box) *world {
	p, s := sitDown(b)
	w := &world{Box: b, money: p}
	w.api = &api{Box: b, player: p, pages: s, apps: s.apps, ids: map[string][]string{}}
	w.reader = &reader{player: s, known: map[string][]string{}}
	w.asker, w.hooks = &asker{world: w}, &subscriber{w}
	for name, accountID := range p.People {
		w.api.see(accountID)
		b.story.names[accountID] = name
	}
	for i, app := range p.Apps {
		w.api.see(app.ID)
		b.story.names[app.ID] = appNames[i]
	}
	var err error
	if w.cast, err = joinCast(w); err != nil {
		b.T.Fatal(err)
	}
	b.whoSends = w.whoSends
	return w
}

// random returns a random history of n steps. The same seed gives the same one.
func random(seed uint64, n int) []bank.Step {
	history, draw := bank.Random(seed, n), rand.New(rand.NewPCG(seed, 15))
	for i := range history {
		x := draw.IntN(100)
		for _, k := range kinds {
			if x -= k.weight; x < 0 {
				history[i].Do = k.name
				break
			}
		}
	}
	return history
}

// play plays a step, and returns what does not hold then.
func (w *world) play(s bank.Step) error {
	var err error
	began := time.Now()
	if !slices.Contains(arming, s.Do) {
		w.failNext(w.failing)
		w.Network.leave(w.leaving)
		w.file.rest(false)
		w.failing, w.leaving = 0, nil
	}
	if i := indexKind(s.Do); i >= 0 {
		time.Sleep(time.Second)
		err = kinds[i].play(w, s)
	} else {
		err = w.money.Play(s)
	}
	if w.hasMet(s, began) {
		err = nil // nobody can say what the step has done: the judges do
	}
	synctest.Wait() // a job may be at work
	if err = errors.Join(err, w.money.Book.CheckStep(), w.checkHooks(false)); err == nil && s.A%5 == 0 {
		err = w.checkAccess()
	}
	if err == nil {
		err = w.checkBooks()
	}
	return err
}

// hasMet ends the faults of a step, and reports whether it has met one.
func (w *world) hasMet(s bank.Step, began time.Time) (met bool) {
	if w.failNext(0) {
		met = true
		w.providers.doubt(began)
		w.api.drawn["met: "+faultStep]++
	}
	met = w.hasLeft() || met
	synctest.Wait()
	w.file.rest(true)
	happened := w.overcome(s)
	if happened == kill {
		w.providers.doubt(began)
	}
	return met || happened != ""
}

func indexKind(name string) int {
	for i, k := range kinds {
		if k.name == name {
			return i
		}
	}
	return -1
}

// restart stops the product, and starts it again after some time.
func (w *world) restart(s bank.Step) error {
	w.money.Resume()
	w.Stop()
	time.Sleep(time.Duration(s.A%100) * time.Second)
	w.Start()
	w.money.Book.DB = w.Server.DB
	return nil
}

// playWhole plays a history to its end in a box of its own, and returns what does not hold. It counts in drawn what
// actors have done with success.
func playWhole(t *testing.T, history []bank.Step, drawn map[string]int) (err error) {
	Run(t, func(b *Box) {
		w := enter(b)
		w.api.drawn, w.reader.drawn = drawn, drawn
		defer w.money.Stop()
		w.Pass(quiet)
		w.begun = goroutines()
		for i, s := range history {
			b.story.begin(i + 1)
			if wrong := w.play(s); wrong != nil {
				err = &failure{i + 1, wrong, b.log.errors(), b.story.deeds}
				return
			}
		}
		b.story.begin(0)
		if wrong := w.end(); wrong != nil {
			err = &failure{0, wrong, w.money.Book.Describe(), b.story.deeds}
		}
	})
	return err
}

// end lets everything come to its end, without faults, and returns what does not hold then.
func (w *world) end() error {
	w.failNext(0)
	w.file.arm("", 0)
	w.receiver.arm(nil)
	if err := w.money.Settle(); err != nil {
		return err
	}
	synctest.Wait()
	book := w.money.Book
	for _, judge := range []func() error{
		book.CheckStep, book.CheckSettled, book.CheckTexts, w.checkAccess, w.checkProviders,
		func() error { return w.checkHooks(true) }, w.checkEnds, w.checkTruth, w.checkCanaries, w.verify,
		w.checkBounds, w.checkSettledBooks, w.checkOut,
	} {
		if err := judge(); err != nil {
			return err
		}
	}
	return nil
}
