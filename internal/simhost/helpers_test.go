package simhost_test

import (
	"encoding/binary"
	"math"
	"strings"
)

func replaceAll(text, old, new string) string { return strings.ReplaceAll(text, old, new) }

func bytesOf(x float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)) }

func floatOf(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
