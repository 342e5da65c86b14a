package handshake

// Admit is the listener's side of a handshake.
var Admit = admit
