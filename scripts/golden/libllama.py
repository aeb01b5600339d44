"""A small ctypes binding to libllama.so, enough to tokenise text, read logits and quantise files.

The wheel that ships the library ships no header, and the parameter structs change between
releases. They are therefore treated as opaque bytes: the library fills in the defaults, the
fields used here are found at fixed offsets whose default values are checked first, and what
matters is read back from the context afterwards. A release that moved them fails loudly.
"""

import ctypes
import glob
import os
import struct

F32, F16 = 0, 1


class _Params(ctypes.Structure):
    # Larger than any of the structs: returned through a hidden pointer and passed on the stack, so
    # the callee reads its own prefix and ignores the rest.
    _fields_ = [("raw", ctypes.c_uint8 * 1024)]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


# Offsets in llama_context_params, with the default each must show.
_CONTEXT_FIELDS = {
    "n_ctx": (0, "I", 512),
    "n_batch": (4, "I", 2048),
    "n_ubatch": (8, "I", 512),
    "n_threads": (28, "i", 4),
    "n_threads_batch": (32, "i", 4),
    "flash_attn": (52, "i", -1),
    "type_k": (104, "i", F16),
    "type_v": (108, "i", F16),
}

# Offsets in llama_model_quantize_params, likewise.
_QUANTIZE_FIELDS = {
    "nthread": (0, "i", 0),
    "ftype": (4, "i", 7),
    "allow_requantize": (16, "?", False),
    "pure": (19, "?", False),
}
# The file types that have one tensor type for all matrices, where `pure` is asked for.
FILE_TYPES = {
    "F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q6_K": 18, "Q5_K": 16, "Q5_1": 9, "Q5_0": 8, "Q4_K": 14,
    "Q4_1": 3, "Q4_0": 2, "IQ4_NL": 25, "IQ4_XS": 30, "Q3_K": 11, "Q2_K": 10,
}


class Library:
    """libllama.so and its siblings, loaded from one folder."""

    def __init__(self, folder):
        # Dependencies first and globally, so that no LD_LIBRARY_PATH is needed.
        for stem in ("libggml-base.so", "libggml-cpu.so", "libggml.so", "libllama.so"):
            found = sorted(glob.glob(os.path.join(folder, stem + "*")), key=len)
            if not found:
                raise FileNotFoundError(f"{stem} is not in {folder}")
            library = ctypes.CDLL(os.path.realpath(found[-1]), mode=ctypes.RTLD_GLOBAL)
        self.c = c = library
        pointer, i32, text = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
        for name, result, arguments in (
            ("llama_backend_init", None, []),
            ("llama_model_default_params", _Params, []),
            ("llama_context_default_params", _Params, []),
            ("llama_model_load_from_file", pointer, [text, _Params]),
            ("llama_init_from_model", pointer, [pointer, _Params]),
            ("llama_model_free", None, [pointer]),
            ("llama_free", None, [pointer]),
            ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_model_chat_template", text, [pointer, text]),
            ("llama_vocab_n_tokens", i32, [pointer]),
            ("llama_vocab_is_eog", ctypes.c_bool, [pointer, i32]),
            ("llama_vocab_bos", i32, [pointer]),
            ("llama_vocab_eos", i32, [pointer]),
            ("llama_vocab_get_add_bos", ctypes.c_bool, [pointer]),
            ("llama_vocab_get_text", text, [pointer, i32]),
            ("llama_n_ctx", ctypes.c_uint32, [pointer]),
            ("llama_n_batch", ctypes.c_uint32, [pointer]),
            ("llama_n_threads", i32, [pointer]),
            ("llama_get_memory", pointer, [pointer]),
            ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
            ("llama_batch_init", _Batch, [i32, i32, i32]),
            ("llama_batch_free", None, [_Batch]),
            ("llama_decode", i32, [pointer, _Batch]),
            ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [pointer, i32]),
            ("llama_tokenize", i32,
             [pointer, text, i32, ctypes.POINTER(i32), i32, ctypes.c_bool, ctypes.c_bool]),
            ("llama_model_quantize_default_params", _Params, []),
            ("llama_model_quantize", ctypes.c_uint32, [text, text, ctypes.POINTER(_Params)]),
            ("llama_log_set", None, [pointer, pointer]),
        ):
            function = getattr(c, name)
            function.restype, function.argtypes = result, arguments
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, text, pointer)(_drop_progress)
        c.llama_log_set(ctypes.cast(self._quiet, pointer), None)
        c.llama_backend_init()

    def quantize(self, source, target, kind, threads=2):
        """Writes `target`: the model `source` with all its matrices in one of `FILE_TYPES`."""
        params = self.c.llama_model_quantize_default_params()
        _set(params, "llama_model_quantize_params", _QUANTIZE_FIELDS,
             {"nthread": threads, "ftype": FILE_TYPES[kind], "allow_requantize": True, "pure": True})
        status = self.c.llama_model_quantize(
            str(source).encode(), str(target).encode(), ctypes.byref(params))
        if status != 0:
            raise RuntimeError(f"llama_model_quantize returned {status} for {target}")


class Model:
    """One GGUF file with one context of one sequence."""

    def __init__(self, library, path, n_ctx, threads=2, kv=F16, flash_attn=-1):
        self.c = c = library.c
        self._library = library
        self.model = c.llama_model_load_from_file(
            str(path).encode(), c.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp could not load {path}")
        params = c.llama_context_default_params()
        _set(params, "llama_context_params", _CONTEXT_FIELDS,
             {"n_ctx": n_ctx, "n_batch": n_ctx, "n_threads": threads, "n_threads_batch": threads,
              "flash_attn": flash_attn, "type_k": kv, "type_v": kv})
        self.context = c.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp could not make a context for {path}")
        assert c.llama_n_ctx(self.context) >= n_ctx, "n_ctx was not taken"
        assert c.llama_n_threads(self.context) == threads, "n_threads was not taken"
        self.vocab = c.llama_model_get_vocab(self.model)
        self.n_vocab = c.llama_vocab_n_tokens(self.vocab)
        self._batch = c.llama_batch_init(n_ctx, 0, 1)

    def close(self):
        self.c.llama_batch_free(self._batch)
        self.c.llama_free(self.context)
        self.c.llama_model_free(self.model)

    def chat_template(self):
        """The template text stored in the file, or None."""
        template = self.c.llama_model_chat_template(self.model, None)
        return template.decode() if template else None

    def tokenize(self, text, add_special, parse_special):
        data = text.encode()
        room = len(data) + 8
        out = (ctypes.c_int32 * room)()
        n = self.c.llama_tokenize(self.vocab, data, len(data), out, room, add_special, parse_special)
        assert n >= 0, n
        return out[:n]

    def is_end(self, token):
        return bool(self.c.llama_vocab_is_eog(self.vocab, token))

    def text(self, token):
        """A token as the vocabulary spells it."""
        return self.c.llama_vocab_get_text(self.vocab, token).decode()

    def bos(self):
        """The token that begins every text, or None if the file wants none."""
        wanted = self.c.llama_vocab_get_add_bos(self.vocab)
        return self.c.llama_vocab_bos(self.vocab) if wanted else None

    def clear(self):
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)

    def logits(self, tokens, start, rows):
        """Runs `tokens` at positions `start..`; returns the logits of the given rows of them."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i in rows
        status = self.c.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        # Views of the library's memory, which the next call overwrites: a large vocabulary is slow to copy number by number.
        row_of_logits = ctypes.POINTER(ctypes.c_float * self.n_vocab)
        found = (self.c.llama_get_logits_ith(self.context, row) for row in rows)
        return [ctypes.cast(logits, row_of_logits).contents for logits in found]


def _set(params, struct_name, fields, values):
    """Sets some fields of a struct, each of which must have shown its default before."""
    for name, value in values.items():
        offset, code, default = fields[name]
        found = struct.unpack_from(code, params.raw, offset)[0]
        if found != default:
            raise RuntimeError(f"{struct_name}.{name} moved: found {found} "
                               f"at {offset}, expected the default {default}")
        struct.pack_into(code, params.raw, offset, value)


def _drop_progress(level, text, _):
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        print(text.decode(errors="replace"), end="", flush=True)
