package web

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
)

// A Page is the requested part of a list (decision 004).
type Page struct {
	Limit         int    // rows at most: 1–100, or 1000 without parameters
	StartingAfter string // the last id of the previous page; "" = from the newest
}

// ReadPage reads limit and starting_after from the query of a list whose rows have ids with a prefix, or names of their
// own with "". starting_after alone means a limit of 100. A parameter that is neither of them nor one of the others
// that the list has is refused: it may be a filter that is misspelled. Errors are 400 invalid_request.
func ReadPage(r *http.Request, prefix string, others ...string) (Page, error) {
	q, err := ReadQuery(r)
	if err != nil {
		return Page{}, err
	}
	if err := refuseOthers(q, slices.Concat(others, []string{"limit", "starting_after"})); err != nil {
		return Page{}, err
	}
	p := Page{Limit: 1000}
	if q.Has("starting_after") {
		p = Page{Limit: 100, StartingAfter: q.Get("starting_after")}
		if !memberName(p.StartingAfter) || prefix != "" && !id.IsValid(prefix, p.StartingAfter) {
			return Page{}, apierr.InvalidRequest.Errorf("starting_after: must be the id of a row of this list")
		}
	}
	if q.Has("limit") {
		text := q.Get("limit")
		n, err := strconv.Atoi(text)
		if err != nil || !isDigits(text) || n < 1 || n > 100 {
			return Page{}, apierr.InvalidRequest.Errorf("limit: must be an integer from 1 to 100")
		}
		p.Limit = n
	}
	return p, nil
}

// refuseOthers returns an error if a query has parameters that are not known.
func refuseOthers(q url.Values, known []string) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			slices.Sort(known)
			return apierr.InvalidRequest.Errorf("%s: is not a parameter of this list, which takes %s", shortName(name),
				strings.Join(known, ", "))
		}
	}
	return nil
}

// LinkNext sets the header Link (RFC 8288) to the page after the row lastID, as a relative reference. Call it before
// writing if there are more rows than the page holds.
func LinkNext(w http.ResponseWriter, r *http.Request, lastID string) {
	LinkTo(w, r, "starting_after", lastID)
}

// SetAfter sets the header with the place in a list that grows from which a later request goes on, which the list's
// parameter takes. It is there on the last page, too, where there is no next one.
func SetAfter(w http.ResponseWriter, place string) { w.Header().Set(AfterHeader, place) }

// LinkTo is LinkNext for lists that continue by another parameter.
func LinkTo(w http.ResponseWriter, r *http.Request, parameter, value string) {
	q := r.URL.Query()
	q.Set(parameter, value)
	target := strings.NewReplacer("<", "%3C", ">", "%3E").Replace(r.URL.EscapedPath())
	w.Header().Set("Link", "<"+target+"?"+q.Encode()+`>; rel="next"`)
}
