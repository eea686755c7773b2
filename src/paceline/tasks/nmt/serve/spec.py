"""Our weights in CTranslate2's layout. Nothing is computed: matrices are put where they belong."""

from typing import Any

import torch
from ctranslate2.specs import TransformerSpec

from paceline.models.shapes import TransformerShape
from paceline.models.transformer import Transformer, sinusoids
from paceline.tasks.nmt.serve.exported import piece_names
from paceline.tasks.nmt.vocabulary import Vocabulary

Weights = dict[str, Any]
"""numpy arrays by their names in the state dict."""


def specify(model: Transformer, vocabulary: Vocabulary, num_positions: int) -> TransformerSpec:
    """A specification that is ready to be quantized and saved."""
    shape = model.shape
    weights = {name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()}
    spec = TransformerSpec.from_config(
        (shape.num_encoder_layers, shape.num_decoder_layers),
        shape.num_heads,
        pre_norm=shape.norm == "pre",
    )
    _fill_embeddings(spec, weights, shape, num_positions)
    for index, layer in enumerate(spec.encoder.layer):
        _fill_self_attention(layer.self_attention, weights, f"encoder.{index}")
        _fill_feed_forward(layer.ffn, weights, f"encoder.{index}")
    for index, layer in enumerate(spec.decoder.layer):
        _fill_self_attention(layer.self_attention, weights, f"decoder.{index}")
        _fill_cross_attention(layer.attention, weights, f"decoder.{index}")
        _fill_feed_forward(layer.ffn, weights, f"decoder.{index}")
    if shape.norm == "pre":
        _fill_norm(spec.encoder.layer_norm, weights, "encoder_norm")
        _fill_norm(spec.decoder.layer_norm, weights, "decoder_norm")
    _name_pieces(spec, vocabulary, shape.padded_vocab_size)
    spec.validate()
    return spec


def _fill_embeddings(
    spec: TransformerSpec, weights: Weights, shape: TransformerShape, num_positions: int
) -> None:
    """One matrix three times: CTranslate2 stores equal ones once. It has the rows that only fill
    the vocabulary, too, because they count in the softmax as they did in training."""
    matrix = weights["embedding.weight"]
    spec.encoder.embeddings[0].weight = matrix
    spec.decoder.embeddings.weight = matrix
    spec.decoder.projection.weight = matrix
    positions = sinusoids(num_positions, shape.width, torch.device("cpu")).numpy()
    spec.encoder.position_encodings.encodings = positions
    spec.decoder.position_encodings.encodings = positions


def _fill_self_attention(spec: Any, weights: Weights, layer: str) -> None:
    spec.linear[0].weight = weights[f"{layer}.attention.projection.weight"]
    spec.linear[1].weight = weights[f"{layer}.attention.output.weight"]
    _fill_norm(spec.layer_norm, weights, f"{layer}.around_attention.norm")


def _fill_cross_attention(spec: Any, weights: Weights, layer: str) -> None:
    for linear, name in zip(spec.linear, ("query", "key_value", "output"), strict=True):
        linear.weight = weights[f"{layer}.cross.{name}.weight"]
    _fill_norm(spec.layer_norm, weights, f"{layer}.around_cross.norm")


def _fill_feed_forward(spec: Any, weights: Weights, layer: str) -> None:
    for linear, name in ((spec.linear_0, "inner"), (spec.linear_1, "outer")):
        linear.weight = weights[f"{layer}.feed_forward.{name}.weight"]
        linear.bias = weights[f"{layer}.feed_forward.{name}.bias"]
    _fill_norm(spec.layer_norm, weights, f"{layer}.around_feed_forward.norm")


def _fill_norm(spec: Any, weights: Weights, name: str) -> None:
    spec.gamma = weights[f"{name}.weight"]
    spec.beta = weights[f"{name}.bias"]


def _name_pieces(spec: TransformerSpec, vocabulary: Vocabulary, num_rows: int) -> None:
    names = piece_names(vocabulary, num_rows)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token = names[vocabulary.unk_id]
    spec.config.bos_token = names[vocabulary.bos_id]
    spec.config.eos_token = names[vocabulary.eos_id]
    spec.config.decoder_start_token = names[vocabulary.bos_id]
    spec.config.add_source_eos = True
