// Package apitest holds tests to the contract: it checks that an HTTP answer is
// one that api/openapi.yaml allows (contract §4, §7, §9). Only tests import it.
//
// It checks the status, the headers, the content type and the body of an answer,
// whole streams event by event, every error against the table of package apierr,
// and sums that no schema can express; and the events of voice control channels.
package apitest
