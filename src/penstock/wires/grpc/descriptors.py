"""File descriptors of the services that we serve. Made by tools/descriptors.py."""

# ruff: noqa: E501  # nobody edits it
# fmt: off
from __future__ import annotations

from base64 import b64decode

# By name: the FileDescriptorProto.
FILES: dict[str, bytes] = {
    "envoy/config/core/v3/base.proto": b64decode(
        "Ch9lbnZveS9jb25maWcvY29yZS92My9iYXNlLnByb3RvEhRlbnZveS5jb25maWcuY29yZS52MyJSCgtIZWFkZXJW"
        "YWx1ZRIQCgNrZXkYASABKAlSA2tleRIUCgV2YWx1ZRgCIAEoCVIFdmFsdWUSGwoJcmF3X3ZhbHVlGAMgASgMUghy"
        "YXdWYWx1ZWIGcHJvdG8z"
    ),
    "envoy/extensions/common/ratelimit/v3/ratelimit.proto": b64decode(
        "CjRlbnZveS9leHRlbnNpb25zL2NvbW1vbi9yYXRlbGltaXQvdjMvcmF0ZWxpbWl0LnByb3RvEiRlbnZveS5leHRl"
        "bnNpb25zLmNvbW1vbi5yYXRlbGltaXQudjMaImVudm95L3R5cGUvdjMvcmF0ZWxpbWl0X3VuaXQucHJvdG8aHmdv"
        "b2dsZS9wcm90b2J1Zi93cmFwcGVycy5wcm90byLgAwoTUmF0ZUxpbWl0RGVzY3JpcHRvchJZCgdlbnRyaWVzGAEg"
        "AygLMj8uZW52b3kuZXh0ZW5zaW9ucy5jb21tb24ucmF0ZWxpbWl0LnYzLlJhdGVMaW1pdERlc2NyaXB0b3IuRW50"
        "cnlSB2VudHJpZXMSYQoFbGltaXQYAiABKAsySy5lbnZveS5leHRlbnNpb25zLmNvbW1vbi5yYXRlbGltaXQudjMu"
        "UmF0ZUxpbWl0RGVzY3JpcHRvci5SYXRlTGltaXRPdmVycmlkZVIFbGltaXQSPQoLaGl0c19hZGRlbmQYAyABKAsy"
        "HC5nb29nbGUucHJvdG9idWYuVUludDY0VmFsdWVSCmhpdHNBZGRlbmQSKAoQaXNfbmVnYXRpdmVfaGl0cxgEIAEo"
        "CFIOaXNOZWdhdGl2ZUhpdHMaLwoFRW50cnkSEAoDa2V5GAEgASgJUgNrZXkSFAoFdmFsdWUYAiABKAlSBXZhbHVl"
        "GnEKEVJhdGVMaW1pdE92ZXJyaWRlEioKEXJlcXVlc3RzX3Blcl91bml0GAEgASgNUg9yZXF1ZXN0c1BlclVuaXQS"
        "MAoEdW5pdBgCIAEoDjIcLmVudm95LnR5cGUudjMuUmF0ZUxpbWl0VW5pdFIEdW5pdGIGcHJvdG8z"
    ),
    "envoy/service/ratelimit/v3/rls.proto": b64decode(
        "CiRlbnZveS9zZXJ2aWNlL3JhdGVsaW1pdC92My9ybHMucHJvdG8SGmVudm95LnNlcnZpY2UucmF0ZWxpbWl0LnYz"
        "Gh9lbnZveS9jb25maWcvY29yZS92My9iYXNlLnByb3RvGjRlbnZveS9leHRlbnNpb25zL2NvbW1vbi9yYXRlbGlt"
        "aXQvdjMvcmF0ZWxpbWl0LnByb3RvGh5nb29nbGUvcHJvdG9idWYvZHVyYXRpb24ucHJvdG8aHGdvb2dsZS9wcm90"
        "b2J1Zi9zdHJ1Y3QucHJvdG8aH2dvb2dsZS9wcm90b2J1Zi90aW1lc3RhbXAucHJvdG8iqAEKEFJhdGVMaW1pdFJl"
        "cXVlc3QSFgoGZG9tYWluGAEgASgJUgZkb21haW4SWwoLZGVzY3JpcHRvcnMYAiADKAsyOS5lbnZveS5leHRlbnNp"
        "b25zLmNvbW1vbi5yYXRlbGltaXQudjMuUmF0ZUxpbWl0RGVzY3JpcHRvclILZGVzY3JpcHRvcnMSHwoLaGl0c19h"
        "ZGRlbmQYAyABKA1SCmhpdHNBZGRlbmQi1woKEVJhdGVMaW1pdFJlc3BvbnNlElUKDG92ZXJhbGxfY29kZRgBIAEo"
        "DjIyLmVudm95LnNlcnZpY2UucmF0ZWxpbWl0LnYzLlJhdGVMaW1pdFJlc3BvbnNlLkNvZGVSC292ZXJhbGxDb2Rl"
        "EloKCHN0YXR1c2VzGAIgAygLMj4uZW52b3kuc2VydmljZS5yYXRlbGltaXQudjMuUmF0ZUxpbWl0UmVzcG9uc2Uu"
        "RGVzY3JpcHRvclN0YXR1c1IIc3RhdHVzZXMSWAoXcmVzcG9uc2VfaGVhZGVyc190b19hZGQYAyADKAsyIS5lbnZv"
        "eS5jb25maWcuY29yZS52My5IZWFkZXJWYWx1ZVIUcmVzcG9uc2VIZWFkZXJzVG9BZGQSVgoWcmVxdWVzdF9oZWFk"
        "ZXJzX3RvX2FkZBgEIAMoCzIhLmVudm95LmNvbmZpZy5jb3JlLnYzLkhlYWRlclZhbHVlUhNyZXF1ZXN0SGVhZGVy"
        "c1RvQWRkEhkKCHJhd19ib2R5GAUgASgMUgdyYXdCb2R5EkIKEGR5bmFtaWNfbWV0YWRhdGEYBiABKAsyFy5nb29n"
        "bGUucHJvdG9idWYuU3RydWN0Ug9keW5hbWljTWV0YWRhdGESSQoFcXVvdGEYByABKAsyMy5lbnZveS5zZXJ2aWNl"
        "LnJhdGVsaW1pdC52My5SYXRlTGltaXRSZXNwb25zZS5RdW90YVIFcXVvdGEa/AEKCVJhdGVMaW1pdBISCgRuYW1l"
        "GAMgASgJUgRuYW1lEioKEXJlcXVlc3RzX3Blcl91bml0GAEgASgNUg9yZXF1ZXN0c1BlclVuaXQSUAoEdW5pdBgC"
        "IAEoDjI8LmVudm95LnNlcnZpY2UucmF0ZWxpbWl0LnYzLlJhdGVMaW1pdFJlc3BvbnNlLlJhdGVMaW1pdC5Vbml0"
        "UgR1bml0Il0KBFVuaXQSCwoHVU5LTk9XThAAEgoKBlNFQ09ORBABEgoKBk1JTlVURRACEggKBEhPVVIQAxIHCgNE"
        "QVkQBBIICgRXRUVLEAcSCQoFTU9OVEgQBRIICgRZRUFSEAYaigEKBVF1b3RhEhoKCHJlcXVlc3RzGAEgASgNUghy"
        "ZXF1ZXN0cxI9Cgt2YWxpZF91bnRpbBgCIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXBIAFIKdmFsaWRV"
        "bnRpbBIOCgJpZBgDIAEoCVICaWRCFgoUZXhwaXJhdGlvbl9zcGVjaWZpZXIa+QIKEERlc2NyaXB0b3JTdGF0dXMS"
        "RgoEY29kZRgBIAEoDjIyLmVudm95LnNlcnZpY2UucmF0ZWxpbWl0LnYzLlJhdGVMaW1pdFJlc3BvbnNlLkNvZGVS"
        "BGNvZGUSXAoNY3VycmVudF9saW1pdBgCIAEoCzI3LmVudm95LnNlcnZpY2UucmF0ZWxpbWl0LnYzLlJhdGVMaW1p"
        "dFJlc3BvbnNlLlJhdGVMaW1pdFIMY3VycmVudExpbWl0EicKD2xpbWl0X3JlbWFpbmluZxgDIAEoDVIObGltaXRS"
        "ZW1haW5pbmcSSwoUZHVyYXRpb25fdW50aWxfcmVzZXQYBCABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb25S"
        "EmR1cmF0aW9uVW50aWxSZXNldBJJCgVxdW90YRgFIAEoCzIzLmVudm95LnNlcnZpY2UucmF0ZWxpbWl0LnYzLlJh"
        "dGVMaW1pdFJlc3BvbnNlLlF1b3RhUgVxdW90YSIrCgRDb2RlEgsKB1VOS05PV04QABIGCgJPSxABEg4KCk9WRVJf"
        "TElNSVQQAjKCAQoQUmF0ZUxpbWl0U2VydmljZRJuCg9TaG91bGRSYXRlTGltaXQSLC5lbnZveS5zZXJ2aWNlLnJh"
        "dGVsaW1pdC52My5SYXRlTGltaXRSZXF1ZXN0Gi0uZW52b3kuc2VydmljZS5yYXRlbGltaXQudjMuUmF0ZUxpbWl0"
        "UmVzcG9uc2ViBnByb3RvMw=="
    ),
    "envoy/type/v3/ratelimit_unit.proto": b64decode(
        "CiJlbnZveS90eXBlL3YzL3JhdGVsaW1pdF91bml0LnByb3RvEg1lbnZveS50eXBlLnYzKmYKDVJhdGVMaW1pdFVu"
        "aXQSCwoHVU5LTk9XThAAEgoKBlNFQ09ORBABEgoKBk1JTlVURRACEggKBEhPVVIQAxIHCgNEQVkQBBIJCgVNT05U"
        "SBAFEggKBFlFQVIQBhIICgRXRUVLEAdiBnByb3RvMw=="
    ),
    "google/protobuf/duration.proto": b64decode(
        "Ch5nb29nbGUvcHJvdG9idWYvZHVyYXRpb24ucHJvdG8SD2dvb2dsZS5wcm90b2J1ZiI6CghEdXJhdGlvbhIYCgdz"
        "ZWNvbmRzGAEgASgDUgdzZWNvbmRzEhQKBW5hbm9zGAIgASgFUgVuYW5vc2IGcHJvdG8z"
    ),
    "google/protobuf/struct.proto": b64decode(
        "Chxnb29nbGUvcHJvdG9idWYvc3RydWN0LnByb3RvEg9nb29nbGUucHJvdG9idWYimAEKBlN0cnVjdBI7CgZmaWVs"
        "ZHMYASADKAsyIy5nb29nbGUucHJvdG9idWYuU3RydWN0LkZpZWxkc0VudHJ5UgZmaWVsZHMaUQoLRmllbGRzRW50"
        "cnkSEAoDa2V5GAEgASgJUgNrZXkSLAoFdmFsdWUYAiABKAsyFi5nb29nbGUucHJvdG9idWYuVmFsdWVSBXZhbHVl"
        "OgI4ASKyAgoFVmFsdWUSOwoKbnVsbF92YWx1ZRgBIAEoDjIaLmdvb2dsZS5wcm90b2J1Zi5OdWxsVmFsdWVIAFIJ"
        "bnVsbFZhbHVlEiMKDG51bWJlcl92YWx1ZRgCIAEoAUgAUgtudW1iZXJWYWx1ZRIjCgxzdHJpbmdfdmFsdWUYAyAB"
        "KAlIAFILc3RyaW5nVmFsdWUSHwoKYm9vbF92YWx1ZRgEIAEoCEgAUglib29sVmFsdWUSPAoMc3RydWN0X3ZhbHVl"
        "GAUgASgLMhcuZ29vZ2xlLnByb3RvYnVmLlN0cnVjdEgAUgtzdHJ1Y3RWYWx1ZRI7CgpsaXN0X3ZhbHVlGAYgASgL"
        "MhouZ29vZ2xlLnByb3RvYnVmLkxpc3RWYWx1ZUgAUglsaXN0VmFsdWVCBgoEa2luZCI7CglMaXN0VmFsdWUSLgoG"
        "dmFsdWVzGAEgAygLMhYuZ29vZ2xlLnByb3RvYnVmLlZhbHVlUgZ2YWx1ZXMqGwoJTnVsbFZhbHVlEg4KCk5VTExf"
        "VkFMVUUQAGIGcHJvdG8z"
    ),
    "google/protobuf/timestamp.proto": b64decode(
        "Ch9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvEg9nb29nbGUucHJvdG9idWYiOwoJVGltZXN0YW1wEhgK"
        "B3NlY29uZHMYASABKANSB3NlY29uZHMSFAoFbmFub3MYAiABKAVSBW5hbm9zYgZwcm90bzM="
    ),
    "google/protobuf/wrappers.proto": b64decode(
        "Ch5nb29nbGUvcHJvdG9idWYvd3JhcHBlcnMucHJvdG8SD2dvb2dsZS5wcm90b2J1ZiIjCgtEb3VibGVWYWx1ZRIU"
        "CgV2YWx1ZRgBIAEoAVIFdmFsdWUiIgoKRmxvYXRWYWx1ZRIUCgV2YWx1ZRgBIAEoAlIFdmFsdWUiIgoKSW50NjRW"
        "YWx1ZRIUCgV2YWx1ZRgBIAEoA1IFdmFsdWUiIwoLVUludDY0VmFsdWUSFAoFdmFsdWUYASABKARSBXZhbHVlIiIK"
        "CkludDMyVmFsdWUSFAoFdmFsdWUYASABKAVSBXZhbHVlIiMKC1VJbnQzMlZhbHVlEhQKBXZhbHVlGAEgASgNUgV2"
        "YWx1ZSIhCglCb29sVmFsdWUSFAoFdmFsdWUYASABKAhSBXZhbHVlIiMKC1N0cmluZ1ZhbHVlEhQKBXZhbHVlGAEg"
        "ASgJUgV2YWx1ZSIiCgpCeXRlc1ZhbHVlEhQKBXZhbHVlGAEgASgMUgV2YWx1ZWIGcHJvdG8z"
    ),
    "grpc/health/v1/health.proto": b64decode(
        "ChtncnBjL2hlYWx0aC92MS9oZWFsdGgucHJvdG8SDmdycGMuaGVhbHRoLnYxIi4KEkhlYWx0aENoZWNrUmVxdWVz"
        "dBIYCgdzZXJ2aWNlGAEgASgJUgdzZXJ2aWNlIrEBChNIZWFsdGhDaGVja1Jlc3BvbnNlEkkKBnN0YXR1cxgBIAEo"
        "DjIxLmdycGMuaGVhbHRoLnYxLkhlYWx0aENoZWNrUmVzcG9uc2UuU2VydmluZ1N0YXR1c1IGc3RhdHVzIk8KDVNl"
        "cnZpbmdTdGF0dXMSCwoHVU5LTk9XThAAEgsKB1NFUlZJTkcQARIPCgtOT1RfU0VSVklORxACEhMKD1NFUlZJQ0Vf"
        "VU5LTk9XThADMq4BCgZIZWFsdGgSUAoFQ2hlY2sSIi5ncnBjLmhlYWx0aC52MS5IZWFsdGhDaGVja1JlcXVlc3Qa"
        "Iy5ncnBjLmhlYWx0aC52MS5IZWFsdGhDaGVja1Jlc3BvbnNlElIKBVdhdGNoEiIuZ3JwYy5oZWFsdGgudjEuSGVh"
        "bHRoQ2hlY2tSZXF1ZXN0GiMuZ3JwYy5oZWFsdGgudjEuSGVhbHRoQ2hlY2tSZXNwb25zZTABYgZwcm90bzM="
    ),
    "grpc/reflection/v1/reflection.proto": b64decode(
        "CiNncnBjL3JlZmxlY3Rpb24vdjEvcmVmbGVjdGlvbi5wcm90bxISZ3JwYy5yZWZsZWN0aW9uLnYxIvMCChdTZXJ2"
        "ZXJSZWZsZWN0aW9uUmVxdWVzdBISCgRob3N0GAEgASgJUgRob3N0EioKEGZpbGVfYnlfZmlsZW5hbWUYAyABKAlI"
        "AFIOZmlsZUJ5RmlsZW5hbWUSNgoWZmlsZV9jb250YWluaW5nX3N5bWJvbBgEIAEoCUgAUhRmaWxlQ29udGFpbmlu"
        "Z1N5bWJvbBJiChlmaWxlX2NvbnRhaW5pbmdfZXh0ZW5zaW9uGAUgASgLMiQuZ3JwYy5yZWZsZWN0aW9uLnYxLkV4"
        "dGVuc2lvblJlcXVlc3RIAFIXZmlsZUNvbnRhaW5pbmdFeHRlbnNpb24SQgodYWxsX2V4dGVuc2lvbl9udW1iZXJz"
        "X29mX3R5cGUYBiABKAlIAFIZYWxsRXh0ZW5zaW9uTnVtYmVyc09mVHlwZRIlCg1saXN0X3NlcnZpY2VzGAcgASgJ"
        "SABSDGxpc3RTZXJ2aWNlc0IRCg9tZXNzYWdlX3JlcXVlc3QiZgoQRXh0ZW5zaW9uUmVxdWVzdBInCg9jb250YWlu"
        "aW5nX3R5cGUYASABKAlSDmNvbnRhaW5pbmdUeXBlEikKEGV4dGVuc2lvbl9udW1iZXIYAiABKAVSD2V4dGVuc2lv"
        "bk51bWJlciKuBAoYU2VydmVyUmVmbGVjdGlvblJlc3BvbnNlEh0KCnZhbGlkX2hvc3QYASABKAlSCXZhbGlkSG9z"
        "dBJWChBvcmlnaW5hbF9yZXF1ZXN0GAIgASgLMisuZ3JwYy5yZWZsZWN0aW9uLnYxLlNlcnZlclJlZmxlY3Rpb25S"
        "ZXF1ZXN0Ug9vcmlnaW5hbFJlcXVlc3QSZgoYZmlsZV9kZXNjcmlwdG9yX3Jlc3BvbnNlGAQgASgLMiouZ3JwYy5y"
        "ZWZsZWN0aW9uLnYxLkZpbGVEZXNjcmlwdG9yUmVzcG9uc2VIAFIWZmlsZURlc2NyaXB0b3JSZXNwb25zZRJyCh5h"
        "bGxfZXh0ZW5zaW9uX251bWJlcnNfcmVzcG9uc2UYBSABKAsyKy5ncnBjLnJlZmxlY3Rpb24udjEuRXh0ZW5zaW9u"
        "TnVtYmVyUmVzcG9uc2VIAFIbYWxsRXh0ZW5zaW9uTnVtYmVyc1Jlc3BvbnNlEl8KFmxpc3Rfc2VydmljZXNfcmVz"
        "cG9uc2UYBiABKAsyJy5ncnBjLnJlZmxlY3Rpb24udjEuTGlzdFNlcnZpY2VSZXNwb25zZUgAUhRsaXN0U2Vydmlj"
        "ZXNSZXNwb25zZRJKCg5lcnJvcl9yZXNwb25zZRgHIAEoCzIhLmdycGMucmVmbGVjdGlvbi52MS5FcnJvclJlc3Bv"
        "bnNlSABSDWVycm9yUmVzcG9uc2VCEgoQbWVzc2FnZV9yZXNwb25zZSJMChZGaWxlRGVzY3JpcHRvclJlc3BvbnNl"
        "EjIKFWZpbGVfZGVzY3JpcHRvcl9wcm90bxgBIAMoDFITZmlsZURlc2NyaXB0b3JQcm90byJqChdFeHRlbnNpb25O"
        "dW1iZXJSZXNwb25zZRIkCg5iYXNlX3R5cGVfbmFtZRgBIAEoCVIMYmFzZVR5cGVOYW1lEikKEGV4dGVuc2lvbl9u"
        "dW1iZXIYAiADKAVSD2V4dGVuc2lvbk51bWJlciJUChNMaXN0U2VydmljZVJlc3BvbnNlEj0KB3NlcnZpY2UYASAD"
        "KAsyIy5ncnBjLnJlZmxlY3Rpb24udjEuU2VydmljZVJlc3BvbnNlUgdzZXJ2aWNlIiUKD1NlcnZpY2VSZXNwb25z"
        "ZRISCgRuYW1lGAEgASgJUgRuYW1lIlMKDUVycm9yUmVzcG9uc2USHQoKZXJyb3JfY29kZRgBIAEoBVIJZXJyb3JD"
        "b2RlEiMKDWVycm9yX21lc3NhZ2UYAiABKAlSDGVycm9yTWVzc2FnZTKJAQoQU2VydmVyUmVmbGVjdGlvbhJ1ChRT"
        "ZXJ2ZXJSZWZsZWN0aW9uSW5mbxIrLmdycGMucmVmbGVjdGlvbi52MS5TZXJ2ZXJSZWZsZWN0aW9uUmVxdWVzdBos"
        "LmdycGMucmVmbGVjdGlvbi52MS5TZXJ2ZXJSZWZsZWN0aW9uUmVzcG9uc2UoATABYgZwcm90bzM="
    ),
    "grpc/reflection/v1alpha/reflection.proto": b64decode(
        "CihncnBjL3JlZmxlY3Rpb24vdjFhbHBoYS9yZWZsZWN0aW9uLnByb3RvEhdncnBjLnJlZmxlY3Rpb24udjFhbHBo"
        "YSL4AgoXU2VydmVyUmVmbGVjdGlvblJlcXVlc3QSEgoEaG9zdBgBIAEoCVIEaG9zdBIqChBmaWxlX2J5X2ZpbGVu"
        "YW1lGAMgASgJSABSDmZpbGVCeUZpbGVuYW1lEjYKFmZpbGVfY29udGFpbmluZ19zeW1ib2wYBCABKAlIAFIUZmls"
        "ZUNvbnRhaW5pbmdTeW1ib2wSZwoZZmlsZV9jb250YWluaW5nX2V4dGVuc2lvbhgFIAEoCzIpLmdycGMucmVmbGVj"
        "dGlvbi52MWFscGhhLkV4dGVuc2lvblJlcXVlc3RIAFIXZmlsZUNvbnRhaW5pbmdFeHRlbnNpb24SQgodYWxsX2V4"
        "dGVuc2lvbl9udW1iZXJzX29mX3R5cGUYBiABKAlIAFIZYWxsRXh0ZW5zaW9uTnVtYmVyc09mVHlwZRIlCg1saXN0"
        "X3NlcnZpY2VzGAcgASgJSABSDGxpc3RTZXJ2aWNlc0IRCg9tZXNzYWdlX3JlcXVlc3QiZgoQRXh0ZW5zaW9uUmVx"
        "dWVzdBInCg9jb250YWluaW5nX3R5cGUYASABKAlSDmNvbnRhaW5pbmdUeXBlEikKEGV4dGVuc2lvbl9udW1iZXIY"
        "AiABKAVSD2V4dGVuc2lvbk51bWJlciLHBAoYU2VydmVyUmVmbGVjdGlvblJlc3BvbnNlEh0KCnZhbGlkX2hvc3QY"
        "ASABKAlSCXZhbGlkSG9zdBJbChBvcmlnaW5hbF9yZXF1ZXN0GAIgASgLMjAuZ3JwYy5yZWZsZWN0aW9uLnYxYWxw"
        "aGEuU2VydmVyUmVmbGVjdGlvblJlcXVlc3RSD29yaWdpbmFsUmVxdWVzdBJrChhmaWxlX2Rlc2NyaXB0b3JfcmVz"
        "cG9uc2UYBCABKAsyLy5ncnBjLnJlZmxlY3Rpb24udjFhbHBoYS5GaWxlRGVzY3JpcHRvclJlc3BvbnNlSABSFmZp"
        "bGVEZXNjcmlwdG9yUmVzcG9uc2USdwoeYWxsX2V4dGVuc2lvbl9udW1iZXJzX3Jlc3BvbnNlGAUgASgLMjAuZ3Jw"
        "Yy5yZWZsZWN0aW9uLnYxYWxwaGEuRXh0ZW5zaW9uTnVtYmVyUmVzcG9uc2VIAFIbYWxsRXh0ZW5zaW9uTnVtYmVy"
        "c1Jlc3BvbnNlEmQKFmxpc3Rfc2VydmljZXNfcmVzcG9uc2UYBiABKAsyLC5ncnBjLnJlZmxlY3Rpb24udjFhbHBo"
        "YS5MaXN0U2VydmljZVJlc3BvbnNlSABSFGxpc3RTZXJ2aWNlc1Jlc3BvbnNlEk8KDmVycm9yX3Jlc3BvbnNlGAcg"
        "ASgLMiYuZ3JwYy5yZWZsZWN0aW9uLnYxYWxwaGEuRXJyb3JSZXNwb25zZUgAUg1lcnJvclJlc3BvbnNlQhIKEG1l"
        "c3NhZ2VfcmVzcG9uc2UiTAoWRmlsZURlc2NyaXB0b3JSZXNwb25zZRIyChVmaWxlX2Rlc2NyaXB0b3JfcHJvdG8Y"
        "ASADKAxSE2ZpbGVEZXNjcmlwdG9yUHJvdG8iagoXRXh0ZW5zaW9uTnVtYmVyUmVzcG9uc2USJAoOYmFzZV90eXBl"
        "X25hbWUYASABKAlSDGJhc2VUeXBlTmFtZRIpChBleHRlbnNpb25fbnVtYmVyGAIgAygFUg9leHRlbnNpb25OdW1i"
        "ZXIiWQoTTGlzdFNlcnZpY2VSZXNwb25zZRJCCgdzZXJ2aWNlGAEgAygLMiguZ3JwYy5yZWZsZWN0aW9uLnYxYWxw"
        "aGEuU2VydmljZVJlc3BvbnNlUgdzZXJ2aWNlIiUKD1NlcnZpY2VSZXNwb25zZRISCgRuYW1lGAEgASgJUgRuYW1l"
        "IlMKDUVycm9yUmVzcG9uc2USHQoKZXJyb3JfY29kZRgBIAEoBVIJZXJyb3JDb2RlEiMKDWVycm9yX21lc3NhZ2UY"
        "AiABKAlSDGVycm9yTWVzc2FnZTKTAQoQU2VydmVyUmVmbGVjdGlvbhJ/ChRTZXJ2ZXJSZWZsZWN0aW9uSW5mbxIw"
        "LmdycGMucmVmbGVjdGlvbi52MWFscGhhLlNlcnZlclJlZmxlY3Rpb25SZXF1ZXN0GjEuZ3JwYy5yZWZsZWN0aW9u"
        "LnYxYWxwaGEuU2VydmVyUmVmbGVjdGlvblJlc3BvbnNlKAEwAWIGcHJvdG8z"
    ),
}

# By name: the files that it imports.
IMPORTS: dict[str, list[str]] = {'envoy/config/core/v3/base.proto': [],
 'envoy/extensions/common/ratelimit/v3/ratelimit.proto': ['envoy/type/v3/ratelimit_unit.proto',
                                                          'google/protobuf/wrappers.proto'],
 'envoy/service/ratelimit/v3/rls.proto': ['envoy/config/core/v3/base.proto',
                                          'envoy/extensions/common/ratelimit/v3/ratelimit.proto',
                                          'google/protobuf/duration.proto',
                                          'google/protobuf/struct.proto',
                                          'google/protobuf/timestamp.proto'],
 'envoy/type/v3/ratelimit_unit.proto': [],
 'google/protobuf/duration.proto': [],
 'google/protobuf/struct.proto': [],
 'google/protobuf/timestamp.proto': [],
 'google/protobuf/wrappers.proto': [],
 'grpc/health/v1/health.proto': [],
 'grpc/reflection/v1/reflection.proto': [],
 'grpc/reflection/v1alpha/reflection.proto': []}

# By full name, the file in which it is defined.
SYMBOLS: dict[str, str] = {'envoy.config.core.v3.HeaderValue': 'envoy/config/core/v3/base.proto',
 'envoy.extensions.common.ratelimit.v3.RateLimitDescriptor': 'envoy/extensions/common/ratelimit/v3/ratelimit.proto',
 'envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry': 'envoy/extensions/common/ratelimit/v3/ratelimit.proto',
 'envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride': 'envoy/extensions/common/ratelimit/v3/ratelimit.proto',
 'envoy.service.ratelimit.v3.RateLimitRequest': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitResponse': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitResponse.Code': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitResponse.Quota': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitResponse.RateLimit': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitService': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit': 'envoy/service/ratelimit/v3/rls.proto',
 'envoy.type.v3.RateLimitUnit': 'envoy/type/v3/ratelimit_unit.proto',
 'google.protobuf.BoolValue': 'google/protobuf/wrappers.proto',
 'google.protobuf.BytesValue': 'google/protobuf/wrappers.proto',
 'google.protobuf.DoubleValue': 'google/protobuf/wrappers.proto',
 'google.protobuf.Duration': 'google/protobuf/duration.proto',
 'google.protobuf.FloatValue': 'google/protobuf/wrappers.proto',
 'google.protobuf.Int32Value': 'google/protobuf/wrappers.proto',
 'google.protobuf.Int64Value': 'google/protobuf/wrappers.proto',
 'google.protobuf.ListValue': 'google/protobuf/struct.proto',
 'google.protobuf.NullValue': 'google/protobuf/struct.proto',
 'google.protobuf.StringValue': 'google/protobuf/wrappers.proto',
 'google.protobuf.Struct': 'google/protobuf/struct.proto',
 'google.protobuf.Timestamp': 'google/protobuf/timestamp.proto',
 'google.protobuf.UInt32Value': 'google/protobuf/wrappers.proto',
 'google.protobuf.UInt64Value': 'google/protobuf/wrappers.proto',
 'google.protobuf.Value': 'google/protobuf/struct.proto',
 'grpc.health.v1.Health': 'grpc/health/v1/health.proto',
 'grpc.health.v1.Health.Check': 'grpc/health/v1/health.proto',
 'grpc.health.v1.Health.Watch': 'grpc/health/v1/health.proto',
 'grpc.health.v1.HealthCheckRequest': 'grpc/health/v1/health.proto',
 'grpc.health.v1.HealthCheckResponse': 'grpc/health/v1/health.proto',
 'grpc.health.v1.HealthCheckResponse.ServingStatus': 'grpc/health/v1/health.proto',
 'grpc.reflection.v1.ErrorResponse': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ExtensionNumberResponse': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ExtensionRequest': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.FileDescriptorResponse': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ListServiceResponse': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ServerReflection': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ServerReflection.ServerReflectionInfo': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ServerReflectionRequest': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ServerReflectionResponse': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1.ServiceResponse': 'grpc/reflection/v1/reflection.proto',
 'grpc.reflection.v1alpha.ErrorResponse': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ExtensionNumberResponse': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ExtensionRequest': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.FileDescriptorResponse': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ListServiceResponse': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ServerReflection': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ServerReflectionRequest': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ServerReflectionResponse': 'grpc/reflection/v1alpha/reflection.proto',
 'grpc.reflection.v1alpha.ServiceResponse': 'grpc/reflection/v1alpha/reflection.proto'}
