package com.example;

import io.smallrye.reactive.messaging.annotations.Blocking;
import jakarta.enterprise.context.ApplicationScoped;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.eclipse.microprofile.reactive.messaging.Incoming;

/** A Quarkus application that puts each order into a file of the storehouse. */
@ApplicationScoped
public class OrdersQuarkus {
    private final Shop shop = new Shop();

/* page: @Incoming */
}

class Shop {
    void process(String key, String value) {
        if (value.equals("invalid")) throw new ValidationException("no such article");
        try {
            Files.writeString(Path.of("storehouse", key), value + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException away) {
            throw new IllegalStateException("the storehouse is not there", away);
        }
    }
}

class ValidationException extends RuntimeException {
    ValidationException(String message) { super(message); }
}
