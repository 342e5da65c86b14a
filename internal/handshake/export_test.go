package handshake

// Admit is authenticate.
var Admit = authenticatePeer
