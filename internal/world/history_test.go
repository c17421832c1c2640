package world

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
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
	on     db.Engine // "" = both
}

// faultStep lets a statement of the next step fail.
const faultStep = "statement-fails"

var kinds = []kind{
	{"read", 18, func(w *world, s bank.Step) error { return w.reader.reads(s) }, ""},
	{"request", 10, func(w *world, s bank.Step) error { return w.api.requests(s) }, ""},
	{"connect", 4, func(w *world, s bank.Step) error { return w.api.connect(s) }, ""},
	{"scenario", 7, func(w *world, s bank.Step) error { return w.cast.step(s) }, ""},
	{"renew", 2, (*world).renew, ""},
	{"stranger", 2, (*world).steal, ""},
	{"forgets", 1, (*world).forgets, ""},
	{"approves", 2, (*world).approves, ""},
	{"vanish", 1, func(w *world, s bank.Step) error { return w.money.Vanish(s) }, ""},
	{"restart", 2, (*world).restart, ""},
	{"ask", 5, func(w *world, s bank.Step) error { return w.asker.ask(s) }, ""},
	{"hooks", 4, func(w *world, s bank.Step) error { return w.hooks.acts(s) }, ""},
	{"clock-steps", 1, (*world).stepClock, db.SQLite},
	{faultStep, 4, func(w *world, s bank.Step) error { w.failing = 1 + s.B%40; return nil }, ""},
	{leaveStep, 2, (*world).leaves, ""},
	{string(kill), 1, arms(kill, 200), ""},
	{string(hangs), 1, arms(hangs, 10), db.SQLite},
	{string(diskFull), 1, arms(diskFull, 4), db.SQLite},
	{"together", 6, (*world).together, db.Postgres},
	{string(kill), 3, arms(kill, 200), db.Postgres},
	{string(stops), 4, arms(stops, 100), db.Postgres},
	{string(stopsAsking), 4, arms(stopsAsking, 4), db.Postgres},
}

// arming are the steps that let something happen in the next one.
var arming = []string{faultStep, leaveStep, string(kill), string(hangs), string(diskFull), string(stops),
	string(stopsAsking)}

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
func random(e db.Engine, seed uint64, n int) []bank.Step {
	history, draw := bank.Random(seed, n), rand.New(rand.NewPCG(seed, 15))
	weights := make([]int, len(kinds))
	for i, k := range kinds {
		weights[i] = k.weight * bank.Swarm(draw) / 2 // money has its share
	}
	for i := range history {
		x := draw.IntN(100)
		for j, k := range kinds {
			if x -= weights[j]; x < 0 {
				if k.on == "" || k.on == e {
					history[i].Do = k.name
				}
				break
			}
		}
	}
	return history
}

// play plays a step, and returns what does not hold then.
func (w *world) play(s bank.Step) error {
	var err error
	began := w.clock.steady()
	isArming := slices.Contains(arming, s.Do)
	if !isArming {
		w.failNext(w.failing)
		w.Network.leave(w.leaving)
		w.rest(false)
		w.failing, w.leaving = 0, nil
	}
	if i := indexKind(s.Do); i >= 0 {
		w.Pass(time.Second)
		err = kinds[i].play(w, s)
	} else {
		err = w.money.Play(s)
	}
	if w.hasMet(s, began) {
		err = nil // nobody can say what the step has done: the judges do
	}
	w.Wait() // a job may be at work
	if err = errors.Join(err, w.holds(func() error { return w.checkStep(s) })); err != nil || isArming {
		return err
	}
	return w.turn(s)
}

// checkStep checks what holds after a step.
func (w *world) checkStep(s bank.Step) error {
	err := errors.Join(w.money.Book.CheckStep(), w.checkHooks(false))
	if err == nil && s.A%5 == 0 {
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
	w.Wait()
	w.rest(true)
	for _, n := range w.running() {
		happened := w.overcome(n, s)
		if happened == kill || happened == stops || happened == stopsAsking {
			w.providers.doubt(began)
		}
		met = met || happened != ""
	}
	return met
}

// rest says whether no process meets a fault of the database for a while.
func (w *world) rest(rests bool) {
	for _, n := range w.running() {
		n.file.rest(rests)
	}
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
	w.Pass(time.Duration(s.A%100) * time.Second)
	w.Start()
	w.money.Book.DB = w.Server.DB
	return nil
}

// playWhole plays a history to its end in a box of its own, and returns what does not hold. It counts in drawn what
// actors have done with success.
func playWhole(t *testing.T, e db.Engine, history []bank.Step, drawn map[string]int) (err error) {
	Run(t, e, func(b *Box) {
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
	w.mu.Lock()
	w.haste = 1
	w.mu.Unlock()
	if err := w.money.Settle(); err != nil {
		return err
	}
	w.Wait()
	book := w.money.Book
	for _, judge := range []func() error{
		book.CheckStep, book.CheckSettled, book.CheckTexts, w.checkAccess, w.checkProviders,
		func() error { return w.checkHooks(true) }, w.checkEnds, w.checkTruth, w.checkCanaries, w.verify,
		w.checkBounds, w.checkSettledBooks,
	} {
		if err := w.holds(judge); err != nil {
			return err
		}
	}
	return w.checkOut()
}
