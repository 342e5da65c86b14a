"""The program of examples/gpt in Keras on JAX: what docs/train-a-language-model.md counts.

It has the presets, the mesh, accumulation, clipping, the schedule, rematerialisation, mixed
precision, checkpoints with resume, CSV, the bar, held-out bits per byte, a learned BPE, generation
with a cache and the last line. It has no layers in a loop, event files (they need TensorFlow),
curves, state shared out or compilation for a slice.
"""
import argparse, gzip, json, math, os, pathlib, subprocess, time

parser = argparse.ArgumentParser()
parser.add_argument("--preset", default="tiny")
parser.add_argument("--data", default="")
parser.add_argument("--vocab", type=int, default=0)
parser.add_argument("--replicas", type=int, default=4)
parser.add_argument("--logical", type=int, default=2)
parser.add_argument("--steps", type=int, default=1200)
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--remat", choices=["none", "full"], default="none")
parser.add_argument("--precision", choices=["f32", "bf16", "f16"], default="f32")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--generate", default="")
parser.add_argument("--out", default="gpt-keras")
args = parser.parse_args()
os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={args.replicas * args.logical}")

import keras, numpy as np
from keras import layers, ops
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PRESETS = {  # layers, width, heads, key heads, hidden, vocabulary, sequence, batch, theta, epsilon
    "tiny": (3, 128, 4, 4, 352, 2048, 128, 16, 1e4, 1e-6),
    "125m": (12, 768, 12, 12, 2048, 25600, 1024, 32, 1e4, 1e-6),
    "1b3": (24, 2048, 16, 16, 5504, 32000, 2048, 32, 1e4, 1e-5),
    "llama3-8b": (32, 4096, 32, 8, 14336, 128256, 8192, 32, 5e5, 1e-5),
}
if args.preset not in PRESETS:
    parser.error(f"no preset {args.preset}; there are {', '.join(PRESETS)}")
depth, width, heads, key_heads, hidden, vocab, sequence, batch, theta, epsilon = PRESETS[args.preset]
vocab, batch = args.vocab or vocab, args.batch or batch
if batch % (args.replicas * args.accumulate):
    parser.error("the batch does not divide")
keras.utils.set_random_seed(args.seed)
keras.config.set_dtype_policy({"f32": "float32", "bf16": "mixed_bfloat16", "f16": "mixed_float16"}[args.precision])

mesh = keras.distribution.DeviceMesh((args.replicas, args.logical), ["batch", "model"], keras.distribution.list_devices())
layout = keras.distribution.LayoutMap(mesh)
layout[".*embedding/embeddings"] = ("model", None)
layout[".*(query|key|value|gate|up)/kernel"] = (None, "model")
layout[".*(out|down)/kernel"] = ("model", None)
layout[".*head/kernel"] = (None, "model")
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"))


# --- the model
def dense(n, name):
    return layers.Dense(n, use_bias=False, kernel_initializer=keras.initializers.RandomNormal(stddev=0.02), name=name)


def rotary(x, positions):
    half = x.shape[-1] // 2
    speeds = theta ** (-ops.arange(half, dtype="float32") / half)
    angles = (ops.cast(positions, "float32")[:, None] * speeds)[None, :, None, :]
    a, b = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    cos, sin = ops.cos(angles), ops.sin(angles)
    return ops.cast(ops.concatenate([a * cos - b * sin, a * sin + b * cos], -1), x.dtype)


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        size = width // heads
        self.norm1 = layers.RMSNormalization(epsilon=epsilon, dtype="float32", name="norm1")
        self.norm2 = layers.RMSNormalization(epsilon=epsilon, dtype="float32", name="norm2")
        self.query, self.out = dense(heads * size, "query"), dense(width, "out")
        self.key, self.value = dense(key_heads * size, "key"), dense(key_heads * size, "value")
        self.gate, self.up, self.down = dense(hidden, "gate"), dense(hidden, "up"), dense(width, "down")

    def call(self, x, cache=None, at=0):
        rows, n = ops.shape(x)[0], x.shape[1]
        h, places = self.norm1(x), at + ops.arange(n)
        by_heads = lambda y, count: ops.reshape(y, (rows, n, count, width // heads))
        q = rotary(by_heads(self.query(h), heads), places)
        k = rotary(by_heads(self.key(h), key_heads), places)
        v = by_heads(self.value(h), key_heads)
        if cache is None:
            y = ops.dot_product_attention(q, k, v, is_causal=True)
        else:
            k = ops.slice_update(cache[0], (0, at, 0, 0), ops.cast(k, cache[0].dtype))
            v = ops.slice_update(cache[1], (0, at, 0, 0), ops.cast(v, cache[1].dtype))
            cache, seen = (k, v), ops.arange(k.shape[1])[None, :] <= places[:, None]
            y = ops.dot_product_attention(q, ops.cast(k, q.dtype), ops.cast(v, q.dtype), mask=seen[None, None])
        x = x + self.out(ops.reshape(y, (rows, n, width)))
        h = self.norm2(x)
        x = x + self.down(ops.silu(self.gate(h)) * self.up(h))
        return x if cache is None else (x, cache)


class Decoder(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(vocab, width, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.02), name="embedding")
        with keras.RematScope("full" if args.remat == "full" else None):
            self.blocks = [Block(name=f"block{i}") for i in range(depth)]
        self.norm = layers.RMSNormalization(epsilon=epsilon, dtype="float32", name="norm")
        self.head = dense(vocab, "head")

    def call(self, tokens, cache=None, at=0):
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            if cache is None:
                x = block(x)
            else:
                x, cache[i] = block(x, cache=cache[i], at=at)
        logits = ops.cast(self.head(self.norm(x)), "float32")
        return logits if cache is None else (logits, cache)


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
words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
words.train_from_iterator((p[: 8 << 20].decode("utf8", "replace") for p in before[:800]), trainers.BpeTrainer(
    vocab_size=vocab, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
training, held = encode(words, before), encode(words, after)
held_bytes = sum(map(len, after))


class Windows(keras.utils.PyDataset):
    """The windows of each step, which depend on the seed and the step alone."""

    def __len__(self):
        return args.steps * args.accumulate

    def __getitem__(self, at):
        rows = batch // args.accumulate
        places = np.random.default_rng((args.seed, at)).integers(0, len(training) - sequence - 1, rows)
        window = np.stack([training[p : p + sequence + 1] for p in places])
        return window[:, :-1], window[:, 1:]


def held_out():
    """The held-out windows, and the weights of their tokens."""
    rows = -(-(len(held) - 1) // sequence)
    rows += -rows % batch
    window, weights = np.zeros((rows, sequence + 1), np.int32), np.zeros((rows, sequence), np.float32)
    for i in range(-(-(len(held) - 1) // sequence)):
        part = held[i * sequence :][: sequence + 1]
        window[i, : len(part)], weights[i, : len(part) - 1] = part, 1
    return window[:, :-1], window[:, 1:], weights


# --- the training
class BitsPerByte(keras.callbacks.Callback):
    def __init__(self, every):
        super().__init__()
        self.every, self.bits, (self.x, self.y, self.weights) = every, None, held_out()

    def on_train_batch_end(self, at, logs=None):
        if (at + 1) % self.every == 0:
            loss = self.model.evaluate(self.x, self.y, sample_weight=self.weights, batch_size=batch, verbose=0)
            # Keras divides the weighted sum by the number of all tokens, padding too.
            self.bits = loss * self.weights.size / math.log(2) / held_bytes


model = Decoder()
model(np.zeros((batch, sequence), np.int32))  # makes the variables
warm = args.steps // 20 + 1
rate = keras.optimizers.schedules.CosineDecay(0.0, args.steps - warm, alpha=0.02, warmup_target=3e-3, warmup_steps=warm)
model.compile(
    optimizer=keras.optimizers.AdamW(rate, weight_decay=0.1, beta_1=0.9, beta_2=0.95, global_clipnorm=1.0,
                                     gradient_accumulation_steps=args.accumulate if args.accumulate > 1 else None),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
out = pathlib.Path(args.out).absolute()
out.mkdir(parents=True, exist_ok=True)
if (out / "backup").exists() and not args.resume:
    parser.error(f"{out} has checkpoints; give --resume or another --out")
third = max(args.steps // 3, 1) * args.accumulate
bits, begun = BitsPerByte(third), time.time()
history = model.fit(Windows(), epochs=1, shuffle=False, callbacks=[
    bits, keras.callbacks.CSVLogger(out / "losses.csv", append=args.resume),
    keras.callbacks.BackupAndRestore(out / "backup", save_freq=third, delete_checkpoint=False)])
seconds = time.time() - begun

# --- generation
if args.generate:
    prompt, made, done = words.encode(args.generate).ids, [], 0
    empty = np.zeros((1, sequence, key_heads, width // heads), np.float32)
    cache, tokens, random = [(empty, empty) for _ in range(depth)], np.array([prompt], np.int32), np.random.default_rng(args.seed)
    while done + tokens.shape[1] < sequence:
        logits, cache = model(tokens, cache=cache, at=done)
        logits = np.array(logits)[0, -1] / 0.7
        likely = np.argsort(logits)[-50:]
        chances = np.exp(logits[likely] - logits[likely].max())
        done, next = done + tokens.shape[1], int(random.choice(likely, p=chances / chances.sum()))
        if next == 0:
            break
        made.append(next)
        tokens = np.array([[next]], np.int32)
    print(args.generate + words.decode(made))

frequency = np.bincount(training, minlength=vocab) + 1.0
unigram = -np.log2(frequency[held[1:]] / frequency.sum()).sum() / held_bytes
print(f"Held out: {held_bytes} bytes. By the frequency of tokens alone {unigram:.3f} bits per byte, "
      f"by gzip -9 {8 * len(gzip.compress(b''.join(after), 9)) / held_bytes:.3f}. Files: {out}")
print(json.dumps({"bits_per_byte": bits.bits, "loss": history.history["loss"][-1], "parameters": model.count_params(),
                  "tokens_per_second": args.steps * batch * sequence / seconds, "steps": args.steps, "seconds": seconds}))
