"""The program of examples/gpt in flax, optax and orbax: what docs/train-a-language-model.md counts.

It has the presets, the mesh, accumulation, clipping, the schedule, rematerialisation, bfloat16,
checkpoints with resume, CSV, held-out bits per byte, a learned BPE, generation with a cache and the
last line. It has no event files, curves, progress bar, state shared out or compilation for a slice.
"""
import argparse, csv, functools, gzip, json, math, os, pathlib, signal, subprocess, time

parser = argparse.ArgumentParser()
parser.add_argument("--preset", default="tiny")
parser.add_argument("--data", default="")
parser.add_argument("--vocab", type=int, default=0)
parser.add_argument("--replicas", type=int, default=4)
parser.add_argument("--logical", type=int, default=2)
parser.add_argument("--steps", type=int, default=1200)
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--remat", choices=["none", "products", "full"], default="none")
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--generate", default="")
parser.add_argument("--out", default="gpt-flax")
args = parser.parse_args()
os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={args.replicas * args.logical}")

import jax, jax.numpy as jnp, numpy as np, optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec as P
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PRESETS = {  # layers, width, heads, key heads, hidden, vocabulary, sequence, batch, theta, epsilon
    "tiny": (3, 128, 4, 4, 352, 2048, 128, 16, 1e4, 1e-6),
    "125m": (12, 768, 12, 12, 2048, 25600, 1024, 32, 1e4, 1e-6),
    "1b3": (24, 2048, 16, 16, 5504, 32000, 2048, 32, 1e4, 1e-5),
    "llama3-8b": (32, 4096, 32, 8, 14336, 128256, 8192, 32, 5e5, 1e-5),
}
if args.preset not in PRESETS:
    parser.error(f"no preset {args.preset}; there are {', '.join(PRESETS)}")
layers, width, heads, key_heads, hidden, vocab, sequence, batch, theta, epsilon = PRESETS[args.preset]
vocab, batch = args.vocab or vocab, args.batch or batch
if batch % (args.replicas * args.accumulate):
    parser.error("the batch does not divide")
dtype = jnp.bfloat16 if args.precision == "bf16" else jnp.float32
mesh = jax.make_mesh((args.replicas, args.logical), ("replica", "logical"),
                     axis_types=(jax.sharding.AxisType.Auto,) * 2)
jax.set_mesh(mesh)


# --- the model
def dense(n, m, spec, rngs):
    init = nnx.with_partitioning(nnx.initializers.normal(0.02), spec)
    return nnx.Linear(n, m, use_bias=False, dtype=dtype, kernel_init=init, rngs=rngs)


def rotary(x, positions):
    half = x.shape[-1] // 2
    speeds = theta ** (-jnp.arange(half) / half)
    angles = (positions[..., None] * speeds)[:, :, None, :]
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)


class Layer(nnx.Module):
    def __init__(self, rngs):
        size = width // heads
        self.norm1 = nnx.RMSNorm(width, epsilon=epsilon, rngs=rngs)
        self.norm2 = nnx.RMSNorm(width, epsilon=epsilon, rngs=rngs)
        self.query = dense(width, heads * size, (None, "logical"), rngs)
        self.key = dense(width, key_heads * size, (None, "logical"), rngs)
        self.value = dense(width, key_heads * size, (None, "logical"), rngs)
        self.out = dense(heads * size, width, ("logical", None), rngs)
        self.gate = dense(width, hidden, (None, "logical"), rngs)
        self.up = dense(width, hidden, (None, "logical"), rngs)
        self.down = dense(hidden, width, ("logical", None), rngs)

    def __call__(self, x, positions, cache, at):
        rows, n, _ = x.shape
        h = self.norm1(x).astype(dtype)
        q = rotary(self.query(h).reshape(rows, n, heads, -1), positions)
        k = rotary(self.key(h).reshape(rows, n, key_heads, -1), positions)
        v = self.value(h).reshape(rows, n, key_heads, -1)
        if cache is None:
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        else:
            k = jax.lax.dynamic_update_slice(cache[0], k, (0, at, 0, 0))
            v = jax.lax.dynamic_update_slice(cache[1], v, (0, at, 0, 0))
            cache = (k, v)
            seen = jnp.arange(k.shape[1])[None, :] <= positions[0][:, None]
            y = jax.nn.dot_product_attention(q, k, v, mask=seen[None, None])
        x = x + self.out(y.reshape(rows, n, -1))
        h = self.norm2(x).astype(dtype)
        return x + self.down(nnx.silu(self.gate(h)) * self.up(h)), cache


class Decoder(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.normal(0.02), ("logical", None))
        self.embedding = nnx.Embed(vocab, width, embedding_init=init, rngs=rngs)

        @nnx.split_rngs(splits=layers)
        @nnx.vmap(in_axes=0, out_axes=0, transform_metadata={nnx.PARTITION_NAME: None})
        def stack(rngs):
            return Layer(rngs)

        self.layers = stack(rngs)
        self.norm = nnx.RMSNorm(width, epsilon=epsilon, rngs=rngs)
        self.head = dense(width, vocab, (None, "logical"), rngs)

    def __call__(self, tokens, cache=None, at=0):
        positions = jnp.broadcast_to(at + jnp.arange(tokens.shape[1]), tokens.shape)
        x = self.embedding(tokens).astype(dtype)

        def one(x, both):
            layer, kept = both
            return layer(x, positions, kept, at)

        if args.remat != "none":
            keep = jax.checkpoint_policies.dots_saveable if args.remat == "products" else None
            one = nnx.remat(one, policy=keep)
        if cache is None:
            x, _ = nnx.scan(lambda x, layer: one(x, (layer, None)), in_axes=(nnx.Carry, 0))(x, self.layers)
        else:
            x, cache = nnx.scan(one, in_axes=(nnx.Carry, 0))(x, (self.layers, cache))
        return self.head(self.norm(x).astype(dtype)).astype(jnp.float32), cache


# --- the texts
def texts():
    if args.data:
        all = pathlib.Path(args.data).read_bytes()
        return [all[: int(len(all) * 0.98)]], [all[int(len(all) * 0.98) :]]
    root = pathlib.Path(subprocess.check_output(["go", "env", "GOROOT"], text=True).strip(), "src")
    files = [f for f in sorted(root.rglob("*.go")) if not {"cmd", "testdata", "vendor"} & set(f.relative_to(root).parts)]
    files = [f for f in files if f.is_file() and not f.name.endswith("_test.go")]
    order, held, size = np.random.default_rng(1).permutation(len(files)), [], 0
    total = sum(f.stat().st_size for f in files)
    while size < 0.02 * total:
        held.append(files[order[len(held)]])
        size += held[-1].stat().st_size
    return [f.read_bytes() for f in files if f not in set(held)], [f.read_bytes() for f in held]


def encode(words, parts):
    ids = [0]
    for e in words.encode_batch([p.decode("utf8", "replace") for p in parts]):
        ids += e.ids + [0]
    return np.array(ids, np.int32)


before, after = texts()
words = Tokenizer(models.BPE())
words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
words.train_from_iterator((p[: 8 << 20].decode("utf8", "replace") for p in before[:800]), trainers.BpeTrainer(
    vocab_size=vocab, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
training, held = encode(words, before), encode(words, after)
held_bytes = sum(map(len, after))

# --- the step
rate = optax.warmup_cosine_decay_schedule(0, 3e-3, args.steps // 20 + 1, args.steps, 6e-5)
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.1))
if args.accumulate > 1:
    tx = optax.MultiSteps(tx, args.accumulate)  # outside of the schedule, which so counts whole steps


@nnx.jit
def create():
    model = Decoder(nnx.Rngs(args.seed))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    for part in (model, optimizer):
        state = nnx.state(part)
        nnx.update(part, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
    return model, optimizer


def losses(model, window):
    logits, _ = model(window[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, window[:, 1:])


@functools.partial(nnx.jit, donate_argnums=(0, 1))
def step(model, optimizer, window):
    loss, gradients = nnx.value_and_grad(lambda m: losses(m, window).mean())(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def measure(model, window, weights):
    return (losses(model, window) * weights).sum()


def windows(at):
    """The windows of a step, which depend on the seed and the step alone."""
    places = np.random.default_rng((args.seed, at)).integers(0, len(training) - sequence - 1, batch)
    return np.stack([training[p : p + sequence + 1] for p in places])


def place(x):
    return jax.device_put(x, NamedSharding(mesh, P("replica")))


def bits_per_byte(model):
    nats, rows = 0.0, -(-(len(held) - 1) // sequence)
    for first in range(0, rows, batch):
        window = np.zeros((batch, sequence + 1), np.int32)
        weights = np.zeros((batch, sequence), np.float32)
        for i in range(min(batch, rows - first)):
            part = held[(first + i) * sequence :][: sequence + 1]
            window[i, : len(part)], weights[i, : len(part) - 1] = part, 1
        nats += float(measure(model, place(window), place(weights)))
    return nats / math.log(2) / held_bytes


model, optimizer = create()
parameters = sum(p.size for p in jax.tree.leaves(nnx.state(model, nnx.Param)))
out = pathlib.Path(args.out).absolute()
out.mkdir(parents=True, exist_ok=True)
manager = ocp.CheckpointManager(out / "checkpoints", options=ocp.CheckpointManagerOptions(max_to_keep=3))
first = 0
if manager.latest_step() is not None:
    if not args.resume:
        parser.error(f"{out} has checkpoints; give --resume or another --out")
    settings = manager.restore(manager.latest_step(), args=ocp.args.Composite(settings=ocp.args.JsonRestore()))["settings"]
    if settings != {"preset": args.preset, "batch": batch, "seed": args.seed}:
        parser.error(f"the checkpoint is of {settings}")
    state = nnx.state((model, optimizer))
    restored = manager.restore(manager.latest_step(), args=ocp.args.Composite(state=ocp.args.StandardRestore(state)))
    nnx.update((model, optimizer), restored["state"])
    first = manager.latest_step()


def save(at):
    manager.save(at, args=ocp.args.Composite(
        state=ocp.args.StandardSave(nnx.state((model, optimizer))),
        settings=ocp.args.JsonSave({"preset": args.preset, "batch": batch, "seed": args.seed})))
    manager.wait_until_finished()


interrupted = []
signal.signal(signal.SIGINT, lambda *_: interrupted.append(1))
table = open(out / "losses.csv", "a", newline="")
rows = csv.writer(table)
third, at, bits, value, begun = max(args.steps // 3, 1), first, None, None, time.time()
for at in range(first + 1, args.steps + 1):
    loss = sum(step(model, optimizer, place(part)) for part in np.split(windows(at), args.accumulate)) / args.accumulate
    if at == 1 or at % 10 == 0 or at == args.steps:
        value = float(loss)
        print(f"step {at} of {args.steps}  loss {value:.4f}", flush=True)
    if at % third == 0:
        bits = bits_per_byte(model)
    if at == 1 or at % 10 == 0 or at == args.steps or at % third == 0:
        rows.writerow([at, value, bits if at % third == 0 else ""])
        table.flush()
    if at % third == 0 or interrupted:
        save(at)
    if interrupted:
        break
seconds = time.time() - begun


# --- generation
@nnx.jit
def advance(model, tokens, cache, at, key):
    logits, cache = model(tokens, cache, at)
    likely, ids = jax.lax.top_k(logits[:, -1] / 0.7, 50)
    drawn = jax.random.categorical(key, likely)
    return jnp.take_along_axis(ids, drawn[:, None], 1), cache


if args.generate and not interrupted:
    prompt = words.encode(args.generate).ids
    shape = (layers, 1, sequence, key_heads, width // heads)
    cache, tokens, done, key = (jnp.zeros(shape, dtype),) * 2, jnp.array([prompt]), 0, jax.random.key(args.seed)
    made = []
    while done + tokens.shape[1] < sequence:
        next, cache = advance(model, tokens, cache, done, jax.random.fold_in(key, done))
        done, tokens = done + tokens.shape[1], next
        if int(next[0, 0]) == 0:
            break
        made.append(int(next[0, 0]))
    from tokenizers import decoders
    words.decoder = decoders.ByteLevel()
    print(args.generate + words.decode(made))

frequency = np.bincount(training, minlength=vocab) + 1.0
unigram = -np.log2(frequency[held[1:]] / frequency.sum()).sum() / held_bytes
print(f"Held out: {held_bytes} bytes. By the frequency of tokens alone {unigram:.3f} bits per byte, "
      f"by gzip -9 {8 * len(gzip.compress(b''.join(after), 9)) / held_bytes:.3f}. Files: {out}")
print(json.dumps({"bits_per_byte": bits, "loss": value, "tokens_per_second": (at - first) * batch * sequence / seconds,
                  "parameters": parameters, "steps": at, "seconds": seconds}))
