package watchdog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Constants for the comparison of hosts.
const (
	waitFraction      = 0.6         // fraction of the floor after which a host counts as waiting
	longFactor        = 12          // number of floors after which an activity other than a step is sure not to complete
	timeoutFactor     = 4           // ratio of a timeout to the usual duration
	maxSkew           = time.Minute // maximum error of a clock
	minWindow         = 5           // minimum time over which hosts are compared, in seconds
	maxStepsAhead     = 16          // maximum number of launched, incomplete steps by which a host may be ahead of another
	maxRecordInterval = 2           // maximum time between two records, in seconds
	majorityFraction  = 0.6         // fraction of a host's time that counts as most of it
)

type diagnosis struct {
	hosts       []Host
	floor       float64
	self        *Host // the reader, or nil
	running     []*Host
	majority    *operation // where more than half of the running hosts wait, or nil
	longestWait float64    // longest time for which a host waits for others
	hasOthers   bool       // a host other than the reader has a record
	isCurrent   bool       // the records are up to date
	findings    []Finding
}

// operation is an operation in which hosts wait for each other.
type operation struct {
	step           int64
	activity, name string
}

func (r *Record) operation() operation { return operation{r.Step, r.Activity, r.ActivityName} }

// compareProgress orders hosts by step and then by the activities within the step.
func compareProgress(a, b *Host) int {
	return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.ActivityIndex, b.ActivityIndex))
}

// diagnose finds the hosts that make no progress, are slow, report an error, or have a wrong clock.
// It ignores waits shorter than floor, in seconds.
//
// A host is reported if other hosts wait for it and it is silent, has left the training loop, or is
// in an activity for longer than the timeout of the activity. The timeout is the host's own. If all
// hosts do the same work, the timeout is derived from the durations on the waiting hosts. A wait of
// all hosts in the same operation is reported only if the caller is one of the hosts.
func diagnose(hosts []Host, floor float64) []Finding {
	d := &diagnosis{hosts: hosts, floor: floor, isCurrent: len(hosts) == 1}
	for i := range hosts {
		h := &hosts[i]
		if h.isSelf {
			d.self = h
		}
		if h.isWaiting() {
			d.longestWait = max(d.longestWait, h.Duration)
		}
		if h.Alive {
			d.running = append(d.running, h)
		}
		d.hasOthers = d.hasOthers || !h.isSelf && !h.Missing
		d.isCurrent = d.isCurrent || h.hasChanged && h.isResponsive() || h.processState != ""
	}
	waiting := map[operation]int{}
	for _, h := range d.running {
		if c := h.operation(); h.isWaiting() && h.Duration >= waitFraction*floor {
			if waiting[c]++; waiting[c]*2 > len(d.running) {
				d.majority = &c
			}
		}
	}
	d.findings = d.findStuck()
	d.addUnreachableHosts()
	for i := range hosts {
		if h := &hosts[i]; h.NonFatalError != "" && h.State != Ended {
			d.addFinding(h, OperationFailed, "%s", h.NonFatalError)
		}
	}
	d.addClockSkews()
	d.addSlowHosts()
	return d.findings
}

// addFinding adds a finding that does not stop the run.
func (d *diagnosis) addFinding(h *Host, cause Cause, format string, args ...any) {
	d.findings = append(d.findings, Finding{Host: h.Record.Host, Name: h.Name, Cause: cause,
		Text: fmt.Sprintf(format, args...)})
}

// findStuck returns findings for the hosts that stop the run: hosts that no longer respond, or
// otherwise hosts that are behind the others.
func (d *diagnosis) findStuck() []Finding {
	var absent, behind []Finding
	for i := range d.hosts {
		h := &d.hosts[i]
		if h.Alive {
			if f := d.checkBehind(h); f.Cause != "" {
				behind = append(behind, f)
			}
		} else if slices.ContainsFunc(h.Findings, isFatal) && h.State == Ended { // the host gave up because of other hosts
			for _, f := range removeKnown(h.Findings, absent) {
				if f.Certain = true; isFatal(f) && d.longestWait >= d.floor {
					absent = append(absent, f)
				}
			}
		} else if f := d.checkAbsent(h); f.Cause != "" {
			absent = append(absent, f)
		}
	}
	if len(absent) > 0 && d.isCurrent {
		return absent
	}
	if len(absent) > 0 || len(behind) > 2 && len(behind) == len(d.running) { // only the reader's own state is reliable
		behind = slices.DeleteFunc(behind, func(f Finding) bool { return d.self == nil || f.Host != d.self.Record.Host })
	}
	if len(behind) == 0 {
		return d.checkStandstill()
	}
	return behind
}

// checkAbsent returns a finding if other hosts wait for this host, but it is missing, is silent, or
// no longer runs steps. Otherwise it returns a finding with an empty Cause.
func (d *diagnosis) checkAbsent(h *Host) Finding {
	f := Finding{Host: h.Record.Host, Name: h.Name, Duration: h.Silent, Certain: true}
	switch {
	case d.longestWait < d.floor/2 || d.longestWait < d.floor && h.processState == "":
	case h.Missing && (!d.hasOthers || h.Silent <= h.silenceLimit):
	case h.Missing:
		f.Cause, f.Text = Missing, "it has shown no sign of life in this run"
	case h.State == Ended:
		f.Cause, f.Text, f.Duration = Exited, fmt.Sprintf("it left the loop after step %d", h.Step), 0
		if h.Error != "" {
			f.Text += ": " + h.Error
		}
	default:
		f.Cause, f.Text = Silent, fmt.Sprintf("no sign of life for %s; last seen after step %d, in %s",
			formatSeconds(f.Duration), h.Step, h.activityText())
		if h.processState != "" {
			f.Text = fmt.Sprintf("its process %d %s: %s", h.PID, h.processState, f.Text)
		}
	}
	return f
}

// checkBehind returns a finding if other hosts are ahead of this host and wait for it, or if this
// host is in a different operation. Otherwise it returns a finding with an empty Cause.
func (d *diagnosis) checkBehind(h *Host) (f Finding) {
	waiting := d.hostsWaitingFor(h)
	late := h.Timeout > 0 && h.Duration > h.Timeout // above its own timeout
	sure := late
	switch k := h.activity(); {
	case k.WaitsForHosts():
		sure = true
		if len(waiting) == 0 || h.Duration < d.floor || k != Exchange && !late || !d.isInOtherOperation(h) {
			return f
		}
	case late:
		sure = k == Input || h.Duration > longFactor*d.floor // the durations of saves and evaluations vary
	case len(waiting) == 0 || h.Record.Host == 0 || !d.exceedsUsualDuration(h, waiting): // only host 0 writes files
		return f
	}
	f = Finding{Host: h.Record.Host, Name: h.Name, Cause: Cause(h.activity().String()), Duration: h.Duration,
		Certain: sure,
		Text:    fmt.Sprintf("in %s for %s, after step %d", h.activityText(), formatSeconds(h.Duration), h.Step)}
	if len(waiting) > 0 {
		w := waiting[0]
		f.Text += fmt.Sprintf("; %s, in %s after step %d", plural(len(waiting), "host waits", "hosts wait"),
			w.activityText(), w.Step)
	}
	if h.NonFatalError != "" {
		f.Text += "; its trouble: " + h.NonFatalError
	}
	return f
}

// hostsWaitingFor returns the hosts that wait in an operation that h has not reached.
func (d *diagnosis) hostsWaitingFor(h *Host) (all []*Host) {
	for i := range d.hosts {
		o := &d.hosts[i]
		if o != h && o.isResponsive() && o.isWaiting() && o.Duration >= waitFraction*d.floor &&
			(compareProgress(o, h) > 0 || h.isWaiting() && o.operation() != h.operation()) {
			all = append(all, o)
		}
	}
	return all
}

// isInOtherOperation reports whether a host is in a different operation from most hosts. Without a
// majority it reports whether the host has made the least progress.
func (d *diagnosis) isInOtherOperation(h *Host) bool {
	if d.majority != nil {
		return h.operation() != *d.majority
	}
	return compareProgress(h, slices.MinFunc(d.running, compareProgress)) == 0 &&
		compareProgress(h, slices.MaxFunc(d.running, compareProgress)) < 0
}

// exceedsUsualDuration reports whether the current activity of h has lasted much longer than the
// same kind of activity on the waiting hosts. It returns false unless most of the waiting hosts
// have completed such an activity.
func (d *diagnosis) exceedsUsualDuration(h *Host, waiting []*Host) bool {
	usual, known := 0.0, 0
	for _, o := range waiting {
		if took, ok := o.LastDurations[h.Activity]; ok {
			usual = max(usual, took)
			known++
		}
	}
	return known*2 > len(waiting) && h.Duration > max(d.floor, timeoutFactor*usual)
}

// checkStandstill returns a finding if all hosts wait in the same operation for too long.
func (d *diagnosis) checkStandstill() []Finding {
	h := d.self
	if h == nil || h.Duration <= h.standstillTimeout || slices.ContainsFunc(d.running,
		func(o *Host) bool { return !o.isWaiting() }) {
		return nil
	}
	return []Finding{{Host: -1, Cause: Undetermined, Duration: h.Duration, Certain: true,
		Text: fmt.Sprintf("no host stands out: %d of %d hosts are alive, and wait in %s for %s, after step %d",
			len(d.running), h.Hosts, h.activityText(), formatSeconds(h.Duration), h.Step)}}
}

// addUnreachableHosts adds findings for hosts that cannot access the record store.
func (d *diagnosis) addUnreachableHosts() {
	var step int64 // largest step of a host
	for i := range d.hosts {
		if h := &d.hosts[i]; h.isResponsive() {
			step = max(step, h.Step)
		}
	}
	for i := range d.hosts {
		switch h := &d.hosts[i]; {
		case h.Missing || h.State == Ended:
		case h.storeError != "":
			d.addFinding(h, StoreUnreachable,
				"it cannot reach the place of the hosts' records, without which hosts do not see each other: %s", h.storeError)
		case h.isSelf && !d.hasOthers && slices.ContainsFunc(d.hosts,
			func(o Host) bool { return o.Missing && o.Silent > 2*o.silenceLimit }):
			d.addFinding(h, StoreUnreachable,
				"it sees no record of any other host: set a Dir that all hosts share, unless no other host has started")
		case !h.isSelf && h.Silent > h.silenceLimit && h.processState == "" && d.isCurrent &&
			float64(step-h.Step) > maxStepsAhead+maxRecordInterval*h.Rate:
			d.addFinding(h, StoreUnreachable,
				"its records ended %s ago, after step %d, while the run is at step %d: it cannot reach their place",
				formatSeconds(h.Silent), h.Step, step)
		}
	}
}

// addClockSkews adds findings for hosts whose clock differs from most of the other clocks.
func (d *diagnosis) addClockSkews() {
	skews := []time.Duration{0}
	for i := range d.hosts {
		if h := &d.hosts[i]; h.hasChanged && !h.isSelf {
			skews = append(skews, h.clockSkew)
		}
	}
	if len(skews)*2 <= len(d.hosts) {
		return // too few clocks are known
	}
	slices.Sort(skews)
	right := min(max(0, skews[(len(skews)-1)/2]), skews[len(skews)/2]) // of two medians the one nearer to the reader
	for i := range d.hosts {
		h := &d.hosts[i]
		if off := (h.clockSkew - right).Round(time.Second); off.Abs() > maxSkew && (h.hasChanged || h.isSelf) &&
			h.State != Ended {
			way := "ahead of"
			if off < 0 {
				way = "behind"
			}
			d.addFinding(h, ClockSkew, "its clock is %s %s those of most hosts", off.Abs(), way)
		}
	}
}

// addSlowHosts adds findings for hosts that make progress, but are so slow that the other hosts
// wait for them most of the time. It adds no finding until all hosts have run for minWindow.
func (d *diagnosis) addSlowHosts() {
	busy := 0 // hosts that do not wait most of the time
	for i := range d.hosts {
		h := &d.hosts[i]
		if !h.isResponsive() || h.State != Running || h.Window < minWindow || h.Step == 0 {
			return
		}
		if _, collective := h.workFractions(); collective < majorityFraction {
			busy++
		}
	}
	if busy > 1+(len(d.hosts)-1)/4 || len(d.hosts) == 1 {
		return
	}
	for i := range d.hosts {
		h := &d.hosts[i]
		own, collective := h.workFractions()
		kind := Other
		if h.TimeFractions[Input.String()] > own/2 {
			kind = Input
		}
		// Every step takes this long, not only one of many.
		if part := h.LastDurations[kind.String()] * h.Rate; own >= majorityFraction && collective <= 0.2 &&
			h.Duration < waitFraction*d.floor && part >= 0.3 && part <= 2 {
			d.addFinding(h, Slow, "it is slow: %.0f %% of its time goes into %s, while the others wait", 100*own,
				activityTexts[kind])
		}
	}
}

// workFractions returns two fractions of the host's time: for its own work and for collective
// operations. Neither fraction includes activities that differ between hosts, such as saves and
// hooks.
func (r *Record) workFractions() (own, collective float64) {
	s := r.TimeFractions
	return s[Input.String()] + s[Other.String()], s[Launch.String()] + s[Result.String()] + s[Exchange.String()]
}
