package stripe

import (
	"net/http"
	"slices"
	"strings"
)

// permissionNames are those of a restricted key, by the path that they are for, without _read or _write.
var permissionNames = map[string]string{
	"/v1/checkout/sessions": "rak_checkout_session",
	"/v1/customers":         "rak_customer",
	"/v1/payment_intents":   "rak_payment_intent",
	"/v1/payment_methods":   "rak_payment_method",
	"/v1/refunds":           "rak_charge", // as charges
	"/v1/charges":           "rak_charge",
	"/v1/disputes":          "rak_dispute",
	"/v1/account":           "rak_accounts_kyc_basic",
	"/v1/accounts":          "rak_accounts_kyc_basic",
	"/v1/account_links":     "rak_account_link",
	"/v1/transfers":         "rak_transfer",
}

// restrictKey gives the key these permissions only, such as rak_charge_write, separated by commas; none = it has all.
// Write includes read.
func (s *Server) restrictKey(w steering) error {
	s.permissions = nil
	if may := w.with.Get("may"); may != "" {
		s.permissions = strings.Split(may, ",")
	}
	return nil
}

// findLack returns the 403 for a request for which the key has no permission, or nil.
func (s *Server) findLack(r *http.Request) *apiError {
	if s.permissions == nil {
		return nil
	}
	for path, name := range permissionNames {
		isOf := r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/")
		if !isOf || slices.Contains(s.permissions, name+"_write") {
			continue
		}
		needed := name + "_write"
		if r.Method == http.MethodGet {
			needed = name + "_read"
		}
		if slices.Contains(s.permissions, needed) {
			continue
		}
		return &apiError{
			status: http.StatusForbidden,
			kind:   "invalid_request_error",
			message: "The provided key 'rk_***' does not have the required permissions for this endpoint. Having " +
				"the '" + needed + "' permission would allow this request to continue.",
		}
	}
	return nil
}

// updateNothing serves updates of objects, of which there is none to be updated.
func (s *Server) updateNothing(r *http.Request) (object, *apiError) {
	if id := r.PathValue("id"); strings.HasPrefix(id, "acct_") && s.connected[id] == nil {
		return nil, noAccess(id)
	}
	return nil, notFound("object: '" + r.PathValue("id") + "'")
}
