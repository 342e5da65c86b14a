package prochost_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// frame builds a frame whose announced lengths may differ from the actual lengths.
func frame(header string, body []byte, headerBytes uint32, bodyBytes uint64) []byte {
	b := binary.BigEndian.AppendUint32([]byte("TPH1"), headerBytes)
	b = binary.BigEndian.AppendUint64(b, bodyBytes)
	return append(append(b, header...), body...)
}

func whole(header string, body ...byte) []byte {
	return frame(header, body, uint32(len(header)), uint64(len(body)))
}

const greeting = `{"ID":1,"Op":"hello","Hello":{"Run":"bad","Process":0,"Processes":1}}`

// say sends frames. It waits for the reply to each frame before it sends the next.
func say(t *testing.T, conn net.Conn, frames ...[]byte) {
	t.Helper()
	for i, f := range frames {
		_, err := conn.Write(f)
		require.NoError(t, err)
		hear(t, conn, fmt.Sprintf(`{"ID":%d`, i+1))
	}
}

// hear reads until the received bytes contain want.
func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	heard := &bytes.Buffer{}
	for !bytes.Contains(heard.Bytes(), []byte(want)) {
		_, err := io.CopyN(heard, conn, 1)
		require.NoError(t, err, "%s", heard)
	}
}

// enter connects to m with the correct secret.
func enter(t *testing.T, m *prochost.Machine) net.Conn {
	t.Helper()
	conn, err := net.Dial(m.Addr().Network(), m.Addr().String())
	require.NoError(t, err)
	require.NoError(t, handshake.Authenticate(t.Context(), conn, m.Host("", 0, 1).Secret))
	return conn
}

// gone closes a connection and waits until the machine has ended the session.
func gone(t *testing.T, m *prochost.Machine, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return m.Present("bad") == nil }, 10*time.Second, time.Millisecond)
}

// TestAMachineOutlivesItsPeers checks that the machine still serves new hosts after a peer has sent
// invalid data.
func TestAMachineOutlivesItsPeers(t *testing.T) {
	m := listen(t, 4, prochost.Options{MaxBytes: 1 << 16})
	hello, join := whole(greeting), whole(`{"ID":2,"Op":"join"}`)
	code := bytes.ReplaceAll([]byte(sum), []byte("%NAME"), []byte("sum"))
	options := `"Format":"mlir","Replicas":1,"Partitions":4,"DeviceAssignment":[[0,1,2,3]],"SPMD":true,"Shardy":true`
	compiled := whole(`{"ID":3,"Op":"compile","Program":{`+options+`}}`, code...)
	joined, ready := [][]byte{hello, join}, [][]byte{hello, join, compiled}
	for name, c := range map[string]struct {
		before [][]byte // frames that the machine answers
		sent   []byte
		want   string // text in the reply; if empty, the machine closes the connection
	}{
		"nothing":                 {nil, nil, ""},
		"another protocol":        {nil, []byte("GET / HTTP/1.1\r\n\r\n    "), ""},
		"a header of 4 GB":        {nil, frame("", nil, 1<<32-1, 0), ""},
		"a body before the hello": {nil, whole(greeting, 1), ""},
		"no JSON":                 {nil, whole("{"), ""},
		"half a header":           {nil, frame(`{"ID"`, nil, 100, 0), ""},
		"no hello":                {nil, whole(`{"Op":"join"}`), `a host begins with \"hello\"`},
		"too many hosts": {nil, whole(`{"Op":"hello","Hello":{"Processes":1000000000}}`),
			"1000000000 processes on 4 devices"},
		"no hosts":                {nil, whole(`{"Op":"hello","Hello":{"Processes":-1}}`), "-1 processes"},
		"a number that is none":   {nil, whole(`{"Op":"hello","Hello":{"Process":7,"Processes":2}}`), "host 7 of 2"},
		"compile before join":     {ready[:1], compiled, `before`},
		"a body that is too long": {ready, frame("{}", nil, 2, 1<<40), ""},
		"half a body":             {ready, frame(`{"ID":4,"Op":"execute"}`, []byte{1}, 23, 9), ""},
		"no request":              {ready, whole(`{"ID":4,"Op":"reboot"}`), "there is no request"},
		"no launch":               {ready, whole(`{"ID":4,"Op":"execute"}`), "there is no request"},
		"no such program": {ready, whole(`{"ID":4,"Op":"execute","Launch":{"Executable":9}}`),
			"there is no program 9"},
		"close no such program": {ready, whole(`{"ID":4,"Op":"release","Executable":-1}`), "there is no program -1"},
		"join twice":            {ready, whole(`{"ID":4,"Op":"join"}`), "has joined"},
		"bytecode": {joined, whole(`{"ID":3,"Op":"compile","Program":{`+options+`}}`, 'M', 'L', 0xef, 'R', 1,
			2, 3), "Program.Trusted"},
		"an option of no type": {joined,
			whole(`{"ID":3,"Op":"compile","Program":{"Overrides":[{"Name":"x","Type":"rune"}]}}`), "rune"},
		"a device that is not here": {joined, whole(`{"ID":3,"Op":"compile","Program":{"DeviceAssignment":[[-7]]}}`, code...),
			"but none of"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := enter(t, m)
			defer gone(t, m, conn)
			require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			say(t, conn, c.before...)
			_, _ = conn.Write(c.sent) // may fail, because the machine may close the connection
			if name == "nothing" || name == "half a header" || name == "half a body" {
				require.NoError(t, conn.(*net.UnixConn).CloseWrite())
			}
			if c.want != "" {
				hear(t, conn, c.want)
				return
			}
			_, err := io.Copy(io.Discard, conn)
			require.False(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		})
	}
	launches := []string{
		`"Arguments":[]`, `"Arguments":null`, `"Arguments":[{"Type":11,"Dims":[1]},{"Type":11,"Dims":[1]}]`,
		`"Arguments":[{"Type":-1,"Dims":[1]}]`,
		`"Arguments":[{"Type":11,"Dims":[-1]}]`, `"Arguments":[{"Type":11,"Dims":[4611686018427387904,4]}]`,
		`"Arguments":[{"Type":99,"Dims":[1]}]`,
		`"Arguments":[{"Type":17,"Dims":[1]}]`, `"Arguments":[{"Type":5,"Dims":[1]}]`,
		`"Arguments":[{"Type":11,"Dims":[1]}],"Donate":[true,true,true]`,
		`"Arguments":[{"Type":11,"Dims":[0]}]`, `"Arguments":[{"Type":11,"Dims":[]}]`,
	}
	for _, l := range launches {
		conn := enter(t, m)
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		say(t, conn, ready...)
		// The body has the right length for the types that are valid.
		_, err := conn.Write(whole(`{"ID":4,"Op":"execute","Launch":{"Executable":1,`+l+`}}`, make([]byte, 16)...))
		require.NoError(t, err)
		hear(t, conn, `{"ID":4,"Error"`)
		gone(t, m, conn)
	}
	sys := open(t, m, "run", 1)[0]
	x := compile(t, sys, "sum", 0, 1, 2, 3)
	got, err := launch(context.Background(), sys, x, 2)
	require.NoError(t, err)
	assert.Equal(t, float32(8), got)
}

func TestASecretIsAskedFor(t *testing.T) {
	for _, given := range []string{"sesame", ""} {
		m, err := prochost.Listen(plugintest.System(t, 2), "tcp", ":0", prochost.Options{Secret: given})
		require.NoError(t, err)
		defer m.Close()
		assert.True(t, m.Addr().(*net.TCPAddr).IP.IsLoopback(), "an address without a host is this machine's: %v", m.Addr())
		h := host(t, m, "run", 0, 1)
		if given != "" {
			require.Equal(t, given, h.Secret)
		}
		require.NotEmpty(t, h.Secret, "without one, the machine draws it")
		for _, other := range []string{"other", ""} {
			h.Secret = other
			_, err = h.Connect()(context.Background())
			require.ErrorContains(t, err, "the secrets of the two sides differ")
			assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(err))
			var gone *prochost.MachineError
			require.ErrorAs(t, err, &gone)
		}
		sys, err := system.Open(context.Background(), system.Options{Connect: host(t, m, "run", 0, 1).Connect()})
		require.NoError(t, err)
		require.NoError(t, sys.Close())
	}
}

// TestStrangersCostNothing opens many unauthenticated connections. Sixty of them send 100 MB each,
// as a greeting with a large header, and 1,000 send nothing. The machine must read little from each
// connection, and a host must still be able to connect.
func TestStrangersCostNothing(t *testing.T) {
	m, err := prochost.Listen(plugintest.System(t, 2), "tcp", "127.0.0.1:0", prochost.Options{})
	require.NoError(t, err)
	defer m.Close()
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, err := range each(60, func(int) error {
		conn, err := net.Dial("tcp", m.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = conn.Write(frame("", nil, 4<<20, 1<<30))
		for sent := 0; err == nil && sent < 100<<20; sent += len(chunk) {
			_, err = conn.Write(chunk)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return nil // the machine has closed the connection
	}) {
		require.NoError(t, err, "stranger %d", i)
	}
	for range 1000 {
		conn, err := net.Dial("tcp", m.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(16), "MiB")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sys, err := system.Open(ctx, system.Options{Connect: host(t, m, "run", 0, 1).Connect()})
	require.NoError(t, err)
	require.NoError(t, sys.Close())
}

func TestASilentMachineIsAnErrorInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = prochost.Host{Network: "tcp", Address: l.Addr().String(), Secret: "sesame", Processes: 1}.Connect()(ctx)
	var gone *prochost.MachineError
	require.ErrorAs(t, err, &gone)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestOptionsAreChecked(t *testing.T) {
	base := plugintest.System(t, 2)
	for _, c := range []struct {
		network string
		opts    prochost.Options
	}{{"udp", prochost.Options{}}, {"unix", prochost.Options{Patience: -1}}, {"unix", prochost.Options{MaxBytes: -1}},
		{"unix", prochost.Options{MeshShape: []int{3}}}} {
		_, err := prochost.Listen(base, c.network, filepath.Join(t.TempDir(), "m"), c.opts)
		require.Error(t, err)
		assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
	}
	_, err := prochost.Listen(base, "unix", filepath.Join(t.TempDir(), "none", "m"), prochost.Options{})
	require.Error(t, err)
	_, here, err := prochost.FromEnviron(func(string) string { return "" })
	require.NoError(t, err)
	require.False(t, here)
	_, here, err = prochost.FromEnviron(func(string) string { return "{" })
	require.True(t, here)
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
}

func TestAnArgumentThatIsTooLargeIsRefusedHere(t *testing.T) {
	m := listen(t, 4, prochost.Options{MaxBytes: 1024})
	sys := open(t, m, "run", 1)[0]
	x := compile(t, sys, "sum", 0, 1, 2, 3)
	var rows, results [][]*pjrt.Buffer
	for _, d := range x.AddressableDevices() {
		b, err := sys.Runtime().BufferFromHost(context.Background(), make([]byte, 512), pjrt.F32, []int{128}, d)
		require.NoError(t, err)
		defer b.Close()
		rows, results = append(rows, []*pjrt.Buffer{b}), append(results, []*pjrt.Buffer{nil})
	}
	err := x.Execute(context.Background(), rows, results, pjrt.ExecuteOptions{})
	require.ErrorContains(t, err, "2048 bytes, the limit is 1024")
	assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err))
}

func FuzzFrames(f *testing.F) {
	f.Add(whole(greeting))
	f.Add(whole(`{"ID":2,"Op":"execute","Launch":{"Arguments":[{"Type":11,"Dims":[2]}]}}`, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(frame("{}", nil, 1<<31, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) { prochost.ReadAll(b, 1<<20) })
}
