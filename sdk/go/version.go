package purser

// Version is the version of this SDK, and that of the contract that it speaks.
const Version = "0.1.0"
