package callers

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
)

// Mount adds the route.
func (s *Resolver) Mount(rt *web.Router) {
	rt.Handle("GET /v1/connection", s.getConnection)
}

// getConnection answers GET /v1/connection: the caller's own connection, with what is
// left of its spend cap. To a child's token it shows the child's budget in place of that.
func (s *Resolver) getConnection(w http.ResponseWriter, r *http.Request) error {
	who, err := s.ResolveAny(r)
	if err != nil {
		return err
	}
	who.Log(r.Context())
	c, err := store.GetConnection(r.Context(), s.db, who.ConnectionID)
	if err != nil {
		return err
	}
	out := c.Resource()
	if who.Child != nil {
		child, err := store.ReadChild(r.Context(), s.db, who.Child.ID)
		if err != nil {
			return err
		}
		out = child.Connection(&c).Resource()
		out.ChildID = &child.ID
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
