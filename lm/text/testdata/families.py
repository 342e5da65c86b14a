# Makes byte-level BPE files in the style of well-known model families with the official package, and
# the ids that the package returns for lines of text. Reads {"training": [...], "lines": [...],
# "vocabulary": n} from FOLDER/in.json and writes FOLDER/NAME.json for each family and FOLDER/ids.json.
import json, sys
from tokenizers import Tokenizer, AddedToken, Regex, models, normalizers, pre_tokenizers as pre, decoders, trainers

folder = sys.argv[1]
given = json.load(open(folder + "/in.json"))
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
             r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"

def byte_level(**options):
    return pre.ByteLevel(**{"add_prefix_space": False, "use_regex": True, **options})

def splits(*expressions):
    return pre.Sequence([pre.Split(Regex(e), "isolated") for e in expressions] + [byte_level(use_regex=False)])

def token(content, **flags):
    return AddedToken(content, **{"normalized": False, **flags})

def special(*contents):
    return [AddedToken(c, normalized=False, special=True) for c in contents]

END = "<|endoftext|>"
spaces = [token(" " * n, normalized=True) for n in range(8, 1, -1)] + [token("\t" * n, normalized=True) for n in range(3, 1, -1)]
deepseek_coder = pre.Sequence([pre.Split(Regex(e), "isolated") for e in [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]] +
                              [pre.Digits(individual_digits=True), byte_level(use_regex=False)])
falcon = pre.Sequence([pre.Punctuation("contiguous"), byte_level(), pre.Digits(individual_digits=False),
                       pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
# name: pre-tokenizer, normalizer, added tokens, options
families = {
    "gpt2": (byte_level(), None, special(END), {}),
    "llama3": (splits(LLAMA3), None, special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"), {"ignore_merges": True}),
    "qwen2": (splits(QWEN2), normalizers.NFC(), special(END, "<|im_start|>", "<|im_end|>") +
              [token("<think>"), token("</think>"), token("<tool_call>"), token("é!", normalized=True)], {}),
    "deepseek-coder": (deepseek_coder, normalizers.Sequence([]), special("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>") +
                       [token("<｜User｜>"), token("<|EOT|>")], {"omit": True}),
    "deepseek3": (splits(*DEEPSEEK3), normalizers.Sequence([]), special("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>") +
                  [token("<｜Assistant｜>"), token("<｜fim▁hole｜>", normalized=True)], {}),
    "falcon": (falcon, None, special(END, ">>TITLE<<", ">>ABSTRACT<<"), {}),
    "starcoder": (pre.Sequence([pre.Digits(individual_digits=True), byte_level()]), None, special(END, "<fim_prefix>"), {}),
    "phi": (byte_level(), None, special(END) + spaces, {}),
    "olmo": (byte_level(), normalizers.NFC(), special(END) + spaces + [token("|||IP_ADDRESS|||", normalized=True)], {"omit": True}),
    "gpt4o": (splits(GPT4O), None, special(END), {}),
    "bloom": (splits(BLOOM), None, special("</s>"), {}),
    "flags": (byte_level(), normalizers.NFC(), special(END) + [
        AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("the", single_word=True), AddedToken("слово", single_word=True, lstrip=True), AddedToken("č"), AddedToken("日", single_word=True),
        AddedToken("<strip>", special=True, lstrip=True, rstrip=True), AddedToken("ab"), AddedToken("abc"), AddedToken("bcd", normalized=False)], {}),
    "prefix": (byte_level(add_prefix_space=True), None, special(END) + [token("<sep>")], {}),
    "unknown": (byte_level(), None, special(END, "<unk>"), {"unk_token": "<unk>", "alphabet": False}),
    "fused": (splits(LLAMA3), None, special(END, "<unk>"), {"unk_token": "<unk>", "fuse_unk": True, "alphabet": False}),
    "behaviors": (pre.Sequence([pre.Split("e", "merged_with_previous"), pre.Split(Regex("[[:punct:]]"), "merged_with_next"), pre.Split(Regex(r"\s+$"), "contiguous"),
                                pre.Split(Regex(r"[\p{Greek}\p{Han}]++(?=\S)"), "isolated", invert=True), byte_level(use_regex=False)]), None, special(END), {}),
}

def omit(path, vocabulary):
    """Removes the bytes that UTF-8 never uses, and adds their characters as tokens if the style does."""
    file = json.load(open(path))
    vocab, model = file["model"]["vocab"], file["model"]
    shown = {b: c for c, b in zip(sorted(pre.ByteLevel.alphabet()), range(0))}
    visible = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    unused = [chr(b) for b in [0xC0, 0xC1] + list(range(0xF5, 0x100))]
    keep = sorted((i, name) for name, i in vocab.items() if name not in unused)
    model["vocab"] = {name: i for i, (_, name) in enumerate(keep)}
    for t in file["added_tokens"]:
        t["id"] = model["vocab"][t["content"]] if t["content"] in model["vocab"] else None
    n = len(model["vocab"])
    for t in file["added_tokens"]:
        if t["id"] is None:
            t["id"], n = n, n + 1
    for name in unused if vocabulary else []:
        file["added_tokens"].append({"id": n, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False})
        n += 1
    json.dump(file, open(path, "w"), ensure_ascii=False)

out = {}
for name, (pre_tokenizer, normalizer, added, options) in families.items():
    model = {k: v for k, v in options.items() if k in ("ignore_merges", "unk_token", "fuse_unk")}
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer is not None:
        t.normalizer = normalizer
    specials = [a for a in added if a.special]
    t.train_from_iterator(given["training"], trainers.BpeTrainer(
        vocab_size=given["vocabulary"], special_tokens=specials, show_progress=False,
        initial_alphabet=pre.ByteLevel.alphabet() if options.get("alphabet", True) else []))
    t.add_tokens([a for a in added if not a.special])
    path = f"{folder}/{name}.json"
    t.save(path, pretty=False)
    if options.get("omit"):
        omit(path, name.startswith("deepseek"))
        t = Tokenizer.from_file(path)
    plain = Tokenizer.from_file(path)
    plain.encode_special_tokens = True
    out[name] = {"official": [e.ids for e in t.encode_batch(given["lines"], add_special_tokens=False)],
                 "plain": [e.ids for e in plain.encode_batch(given["lines"], add_special_tokens=False)]}
json.dump(out, open(folder + "/ids.json", "w"))
