package stripe

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// defaultPage is how many objects a page of a list has without limit.
const defaultPage = 10

// serveList answers a page of a list, newest first. all are the objects, oldest first. The members that by names filter
// it, if the request has them, and so does created[gte].
func (s *Server) serveList(r *http.Request, all []object, by ...string) (object, *apiError) {
	q := r.URL.Query()
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return nil, badRequest("Invalid limit.")
		}
		limit = n
	}
	page, more, after := []object{}, false, q.Get("starting_after")
	for _, o := range slices.Backward(all) {
		switch {
		case !matches(o, q, by):
		case after != "":
			if o["id"] == after {
				after = ""
			}
		case len(page) == limit:
			more = true
		default:
			page = append(page, s.expandListed(o, expandedParts(r)))
		}
	}
	if after != "" {
		return nil, notFound("object: " + after)
	}
	return object{"object": "list", "data": page, "has_more": more, "url": r.URL.Path}, nil
}

// matches reports whether an object is one of those that a list asks for.
func matches(o object, q url.Values, by []string) bool {
	for _, name := range by {
		if want := q.Get(name); want != "" && o[name] != want {
			return false
		}
	}
	from, err := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
	created, _ := o["created"].(int64)
	return err != nil || created >= from
}

// expandListed returns an object of a list with its payment in full, if that is asked for.
func (s *Server) expandListed(o object, expand []string) object {
	id, _ := o["payment_intent"].(string)
	if s.intents[id] == nil || !slices.Contains(expand, "data.payment_intent") {
		return o
	}
	o = maps.Clone(o)
	o["payment_intent"] = s.expandIntent(id, false, false)
	return o
}

// listCharges serves GET /v1/charges.
func (s *Server) listCharges(r *http.Request) (object, *apiError) {
	return s.serveList(r, s.charges, "payment_intent", "customer")
}

// listRefunds serves GET /v1/refunds.
func (s *Server) listRefunds(r *http.Request) (object, *apiError) {
	return s.serveList(r, s.refunds, "payment_intent")
}

// listDisputes serves GET /v1/disputes.
func (s *Server) listDisputes(r *http.Request) (object, *apiError) {
	return s.serveList(r, s.disputes, "payment_intent")
}

// listTransfers serves GET /v1/transfers.
func (s *Server) listTransfers(r *http.Request) (object, *apiError) {
	return s.serveList(r, s.transfers, "transfer_group", "destination")
}

// listIntents serves GET /v1/payment_intents.
func (s *Server) listIntents(r *http.Request) (object, *apiError) {
	if customer := r.URL.Query().Get("customer"); customer != "" && !s.customers[customer] {
		return nil, missingParam("customer", customer)
	}
	list := []object{}
	for _, id := range s.intentIDs {
		list = append(list, s.expandIntent(id, false, false))
	}
	return s.serveList(r, list, "customer")
}
