package rules

// Kinds of notices. An allocation's say how many percent of it are consumed.
const (
	NoticeAllocation50      = "allocation_50"
	NoticeAllocation80      = "allocation_80"
	NoticeAllocation100     = "allocation_100"
	NoticeFrozen            = "frozen"          // by the risk thresholds
	NoticeFrozenPayment     = "frozen_payment"  // because a payment was reversed or is disputed
	NoticeFrozenOperator    = "frozen_operator" // by the operator
	NoticeAllocationRequest = "allocation_request"
)

// Notice is an email to a user about money, before it is written.
type Notice struct {
	ID, Kind, AccountID, ConnectionID, AppID string
	Data                                     string // JSON object: the connection, or the allocation request
	CreatedUS                                int64
}
