package rules

// Kinds of notices. An allocation's say how many percent of it are consumed.
const (
	NoticeAllocation50      = "allocation_50"
	NoticeAllocation80      = "allocation_80"
	NoticeAllocation100     = "allocation_100"
	NoticeFrozen            = "frozen"
	NoticeFrozenPayment     = "frozen_payment" // frozen because a payment was reversed or is disputed
	NoticeAllocationRequest = "allocation_request"
)

// Notice is an email to a user about money, before it is written.
type Notice struct {
	ID, Kind, AccountID, ConnectionID, AppID string
	Data                                     string // JSON object: the connection, or the allocation request
	CreatedUS                                int64
}
