package events

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Outcome is the final state of a run.
type Outcome int

// The outcomes, with the numbers of TensorBoard's constants.
const (
	Succeeded Outcome = 1
	Failed    Outcome = 2
)

// The fields of the messages of tensorboard/plugins/hparams/plugin_data.proto, and of
// google.protobuf.Value.
const (
	hparamsStart, hparamsEnd = 3, 4

	startValues, startSeconds = 1, 5
	endStatus, endSeconds     = 1, 2

	entryKey, entryValue = 1, 2

	protoNumber, protoString, protoBool = 2, 3, 4

	pluginContent = 2
	dtypeFloat    = 1
)

// Hyperparameters returns the hyperparameters of a run as a value. Write it in an event at the
// start of the run, in the parent directory of the run's metrics: TensorBoard's HPARAMS page uses
// it to compare runs. Numbers and booleans are written with their types. seconds is a Unix time.
func Hyperparameters(values map[string]string, seconds float64) Value {
	var start []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		entry := appendText(nil, entryKey, name)
		start = appendBytes(start, startValues, appendBytes(entry, entryValue, hyperparameter(values[name])))
	}
	return hparams("session_start_info", hparamsStart, appendDouble(start, startSeconds, seconds))
}

// HyperparametersEnd returns a value that records the end of a run, after [Hyperparameters]
// recorded its start. seconds is a Unix time.
func HyperparametersEnd(o Outcome, seconds float64) Value {
	return hparams("session_end_info", hparamsEnd, appendDouble(appendInt(nil, endStatus, uint64(o)), endSeconds, seconds))
}

// hyperparameter returns a hyperparameter as an encoded google.protobuf.Value message.
func hyperparameter(text string) []byte {
	if x, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(x) && !math.IsInf(x, 0) {
		return appendDouble(nil, protoNumber, x)
	}
	switch text {
	case "true":
		return appendInt(nil, protoBool, 1)
	case "false":
		return appendInt(nil, protoBool, 0)
	}
	return appendText(nil, protoString, text)
}

// hparams returns a value whose metadata contains a message for TensorBoard's hparams plugin.
func hparams(tag string, field protowire.Number, message []byte) Value {
	return Value{Tag: "_hparams_/" + tag, Kind: ForPlugin, Plugin: "hparams", Content: appendBytes(nil, field, message)}
}
