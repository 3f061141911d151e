package com.example;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** A sink into files of the folder storehouse; what cannot be written it reports, as sinks for databases do. */
public class FolderSink extends SinkConnector {
    @Override public Class<? extends Task> taskClass() { return FolderTask.class; }
    @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(Map.of()); }
    @Override public ConfigDef config() { return new ConfigDef(); }
    @Override public void start(Map<String, String> settings) { }
    @Override public void stop() { }
    @Override public String version() { return "1"; }

    public static class FolderTask extends SinkTask {
        @Override public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                try {
                    Files.writeString(Path.of("storehouse", (String) record.key()), record.value() + "\n",
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                } catch (IOException away) {
                    context.errantRecordReporter().report(record, new ConnectException("the storehouse is not there", away));
                }
            }
        }
        @Override public void start(Map<String, String> settings) { }
        @Override public void stop() { }
        @Override public String version() { return "1"; }
    }
}
